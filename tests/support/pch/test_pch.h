// Precompiled (option b_pch) for test programs of several files. Every file names all that it needs itself, so that it
// compiles without.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/heddle.h"
