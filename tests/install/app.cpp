// A host program with names and macros of its own that an engine might use, too. It is compiled against the installed
// headers by install_test.py, which checks what it prints.
#define CHECK(x) this_is_not_yours(x)
#define LOG(x) this_is_not_yours(x)
#define ASSERT(x) this_is_not_yours(x)
#define DEVICE this_is_not_yours

#include <all_headers.h>

// Headers of some systems define these.
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

#include <iostream>

struct Tensor {
  int value = 7;
};
static int relu(int x) { return max(x, 0); }

double sum_in_other_file();

int main() {
  const Tensor mine;
  std::cout << "versions " << HEDDLE_VERSION_STRING << ' ' << heddle::version() << '\n';
  std::cout << "own " << relu(-3) + min(mine.value, 9) << '\n';
  std::cout << "sum " << sum_in_other_file() << '\n';
  try {
    heddle::Tensor::empty({2, 3}).reshape({4});
  } catch (const heddle::InvalidArgument& error) {
    std::cout << "caught " << error.what() << '\n';
  }
}
