// Precompiled (option b_pch): what most files of the program include, directly or not. Every file names all that it
// needs itself, so that it compiles without.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/nn/module.h"
