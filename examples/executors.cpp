// Threads: heed has no pool of its own and starts none. Give a backend yours: anything with concurrency() and
// parallel_for(count, part). The result's bits do not depend on it.
// expect: 4 workers, 1000 rows, the same bits as one thread: yes
// expect: last row: 999 1998
#include <atomic>
#include <cstdio>
#include <cstring>
#include <heed/heed.hpp>
#include <thread>
#include <vector>

// The shortest pool that is right: it starts threads for each call. (A real one keeps them asleep between calls.)
class Threads {
 public:
  explicit Threads(int count) : count_(count) {}
  int concurrency() const noexcept { return count_; }

  // Calls part(index, worker) once for each index; no two calls at a time have the same worker.
  void parallel_for(heed::Index count, heed::PartFunction part) noexcept {
    std::atomic<heed::Index> next = 0;
    const auto work = [&](int worker) {
      for (heed::Index index = next++; index < count; index = next++) part(index, worker);
    };
    std::vector<std::thread> others;
    for (int worker = 1; worker < count_; ++worker) others.emplace_back(work, worker);
    work(0);
    for (std::thread& other : others) other.join();
  }

 private:
  int count_;
};

int main() {
  Threads pool(4);
  const heed::Cpu many(pool);  // refers to the pool
  const heed::Cpu one;

  // Row r of x is (r, r, …, r); the weights average it, and double that.
  constexpr heed::Index rows = 1000, features = 256, outputs = 2;
  heed::Tensor<float, 2> x({rows, features});
  heed::Tensor<float, 2> weight({outputs, features});
  for (heed::Index i = 0; i < features; ++i) {
    for (heed::Index row = 0; row < rows; ++row) x(row, i) = static_cast<float>(row);
    weight(0, i) = 1.0F / features;
    weight(1, i) = 2.0F / features;
  }
  const heed::Linear<float> linear({.weight = weight});
  const auto y = linear.forward(many, x);
  const bool same = std::memcmp(y.data(), linear.forward(one, x).data(), rows * outputs * sizeof(float)) == 0;
  std::printf("%d workers, %td rows, the same bits as one thread: %s\n", many.concurrency(), y.extent(0),
              same ? "yes" : "no");
  std::printf("last row: %g %g\n", y(999, 0), y(999, 1));
}
