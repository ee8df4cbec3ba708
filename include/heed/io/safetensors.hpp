// Reading and writing safetensors files. Needs nlohmann-json; included by name, not by heed.hpp.
#pragma once

#include "heed/io/safetensors_reader.hpp"
#include "heed/io/safetensors_writer.hpp"
