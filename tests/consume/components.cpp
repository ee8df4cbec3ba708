// The parts that are included by name, each with the target that brings what it needs.
#include <cstdio>
#include <heed/core/openmp_executor.hpp>
#include <heed/heed.hpp>
#include <heed/io/safetensors.hpp>

int main() {
  heed::OpenMpExecutor executor(2);
  const heed::Cpu cpu(executor);
  std::printf("%d workers\n", cpu.concurrency());
  try {
    static_cast<void>(heed::SafetensorsReader::open("there is no such file"));
  } catch (const heed::Error& error) {
    std::printf("%s\n", error.what());
    return cpu.concurrency() == 2 ? 0 : 1;
  }
  return 1;
}
