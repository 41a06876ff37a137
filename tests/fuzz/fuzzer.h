// What every fuzzer gives to its driver, be it libFuzzer or driver.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The inputs to begin with, made by code: good files of every kind and some that are almost good.
std::vector<std::string> make_seeds();

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
