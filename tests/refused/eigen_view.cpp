// Each number is a view of Eigen's memory that must not compile, with one message.
#include <heed/interop/eigen.hpp>

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void refused() {
#if REFUSED == 1
  Eigen::MatrixXf column_major;
  heed::as_view(column_major);
#elif REFUSED == 2
  RowMajor a, b;
  heed::as_view(a + b);
#elif REFUSED == 3
  heed::as_view(RowMajor());
#elif REFUSED == 4
  Eigen::MatrixXi integers;
  heed::as_view(integers.transpose());
#elif REFUSED == 5
  heed::as_view(Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::InnerStride<2> >(nullptr, 2, 2));
#endif
}
