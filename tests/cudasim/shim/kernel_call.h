// A kernel with its arguments, as the simulator runs it. Kernel sources see this header through the shim; it must not
// know the simulator's insides.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cudasim {

// Turns addresses that the program holds into addresses that a kernel may use while it runs.
class AddressMap {
 public:
  virtual ~AddressMap() = default;
  // An argument that is a pointer. Memory that a device cannot reach is a fault.
  virtual void* pointer(void* address) = 0;
  // Eight bytes inside an argument of class type: a device pointer, or anything else, which stays as it is.
  virtual std::uintptr_t word(std::uintptr_t value) = 0;
};

class KernelCall {
 public:
  virtual ~KernelCall() = default;
  // The same call with addresses that work while the kernel runs.
  virtual std::shared_ptr<const KernelCall> translated(AddressMap& map) const = 0;
  // Calls the kernel once per thread that next_thread() supplies.
  virtual void run_threads() const = 0;
};

// Makes a call of a kernel from the array of argument addresses that cudaLaunchKernel takes.
using KernelFactory = std::shared_ptr<const KernelCall> (*)(const void* kernel, void** arguments);
// Makes a kernel known, so that cudaLaunchKernel can be called with its address. Registering it again changes nothing.
__attribute__((visibility("default"))) void register_kernel(const void* kernel, KernelFactory factory);
// Makes the host's code of a kernel known under the name by which a file that nvcc compiled registers it.
__attribute__((visibility("default"))) void register_named_kernel(const char* mangled, const void* kernel,
                                                                  KernelFactory factory);

// Sets threadIdx for the next thread of the running block that has not started; false when there is none left.
__attribute__((visibility("default"))) bool next_thread();

template <class T>
T translated_argument(T value, AddressMap& map) {
  static_assert(std::is_trivially_copyable_v<T>, "an argument of a kernel is copied byte by byte");
  if constexpr (std::is_pointer_v<T>) {
    static_assert(!std::is_function_v<std::remove_pointer_t<T>>, "a kernel cannot take a host function");
    return static_cast<T>(map.pointer(const_cast<void*>(static_cast<const void*>(value))));
  } else if constexpr (std::is_class_v<T> && alignof(T) % sizeof(void*) == 0) {
#if __has_builtin(__builtin_clear_padding)
    // What an older value left between the members might make an address with the number beside it.
    __builtin_clear_padding(&value);
#endif
    for (std::size_t offset = 0; offset + sizeof(std::uintptr_t) <= sizeof(T); offset += sizeof(std::uintptr_t)) {
      auto* place = reinterpret_cast<unsigned char*>(&value) + offset;
      std::uintptr_t bits = 0;
      std::memcpy(&bits, place, sizeof(bits));
      const std::uintptr_t translated = map.word(bits);
      if (translated != bits) std::memcpy(place, &translated, sizeof(translated));
    }
    return value;
  } else {
    return value;
  }
}

template <class... Parameters>
class TypedKernelCall final : public KernelCall {
 public:
  using Function = void (*)(Parameters...);
  using Arguments = std::tuple<std::remove_const_t<Parameters>...>;

  TypedKernelCall(Function function, Arguments arguments) : function_(function), arguments_(std::move(arguments)) {}

  static std::shared_ptr<const KernelCall> make(const void* kernel, void** arguments) {
    return make(kernel, arguments, std::index_sequence_for<Parameters...>{});
  }

  std::shared_ptr<const KernelCall> translated(AddressMap& map) const override {
    return std::apply(
        [&](const auto&... argument) {
          return std::make_shared<TypedKernelCall>(function_, Arguments(translated_argument(argument, map)...));
        },
        arguments_);
  }

  void run_threads() const override {
    while (next_thread()) std::apply(function_, arguments_);
  }

 private:
  template <std::size_t... I>
  static std::shared_ptr<const KernelCall> make(const void* kernel, [[maybe_unused]] void** arguments,
                                                std::index_sequence<I...>) {
    return std::make_shared<TypedKernelCall>(
        reinterpret_cast<Function>(const_cast<void*>(kernel)),
        Arguments(*static_cast<const std::remove_const_t<Parameters>*>(arguments[I])...));
  }

  Function function_;
  Arguments arguments_;
};

}  // namespace cudasim
