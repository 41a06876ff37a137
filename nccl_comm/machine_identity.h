// Tells ranks whether they run on one machine: it decides over addresses and shared processors.
#pragma once

#include <string>

namespace heddle::comm {

// The same text in processes of one machine that know it by the same name, and another one on every other machine, even
// one of that name: machines made from one image often share it, but have not been started together.
std::string machine_identity();

}  // namespace heddle::comm
