// Precompiled (option b_pch): what most files of the engine include, directly or not. Every file names all that it
// needs itself, so that it compiles without.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/tensor/tensor.h"
