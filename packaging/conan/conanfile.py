"""Conan 2 recipe of heed, from the clone that it stands in: conan create packaging/conan

heed brings its own CMake package, which consumers find through CMakeToolchain (find_package(heed), heed::heed), and
leaves what it stands on to Conan; with -o "heed/*:system_dependencies=True" to the system.
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Heed(ConanFile):
    name = "heed"
    description = "Attention layers for C++20, header-only"
    license = "MIT"
    topics = ("attention", "transformer", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    options = {
        "io": [True, False],  # safetensors files: needs nlohmann_json
        "tbb": [True, False],  # TbbExecutor: needs oneTBB
        "system_dependencies": [True, False],  # take them all from the system
    }
    default_options = {"io": True, "tbb": False, "system_dependencies": False}
    no_copy_source = True
    generators = "CMakeDeps"

    @property
    def _root(self):
        return os.path.normpath(os.path.join(self.recipe_folder, "..", ".."))

    def set_version(self):
        text = load(self, os.path.join(self._root, "include", "heed", "version.hpp"))
        self.version = ".".join(re.findall(r"#define HEED_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))

    def export_sources(self):
        for pattern in "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "tools/*":
            copy(self, pattern, self._root, self.export_sources_folder)

    def requirements(self):
        if self.options.system_dependencies:
            return
        self.requires("eigen/[>=3.4]", transitive_headers=True)
        self.requires("xsimd/[>=8.1]", transitive_headers=True)
        if self.options.io:
            self.requires("nlohmann_json/[>=3.11]", transitive_headers=True)
        if self.options.tbb:
            self.requires("onetbb/[>=2021]", transitive_headers=True, transitive_libs=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["HEED_BUILD_TESTS"] = False
        toolchain.cache_variables["HEED_BUILD_EXAMPLES"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        # Headers are the same for all; but which components the package has depends on what there was.
        keep = {name: self.info.options.get_safe(name) for name in ("io", "tbb", "system_dependencies")}
        self.info.clear()
        for name, value in keep.items():
            setattr(self.info.options, name, value)

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        # heed's own package is the one to find, not one that Conan makes up.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "heed")]
