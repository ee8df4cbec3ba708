// The parts that are included by name, each with the target that brings what it needs.
#include <cstdio>
#include <heed/core/openmp_executor.hpp>
#include <heed/core/tbb_executor.hpp>
#include <heed/heed.hpp>
#include <heed/io/safetensors.hpp>

int main() {
  heed::OpenMpExecutor openmp(2);
  heed::TbbExecutor tbb(1);
  const int workers = heed::Cpu(openmp).concurrency() + heed::Cpu(tbb).concurrency();
  std::printf("%d workers\n", workers);
  try {
    static_cast<void>(heed::SafetensorsReader::open("there is no such file"));
  } catch (const heed::Error& error) {
    std::printf("%s\n", error.what());
    return workers == 3 ? 0 : 1;
  }
  return 1;
}
