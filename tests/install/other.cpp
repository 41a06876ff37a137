// The second file of the host program: the same headers again, so that a function defined twice would not link.
#include <all_headers.h>

double sum_in_other_file();

double sum_in_other_file() {
  const heddle::Variable x(heddle::Tensor::from_values<float>({1.f, 2.f, 3.f}, {3}), true);
  heddle::backward(heddle::ops::sum(heddle::ops::mul(x, 2.0)));
  heddle::Variable handle = x;
  return handle.grad().to_vector<float>()[2] + 40.0;
}
