// Names of functions from the symbol tables of the loaded files; see the header.
#include "tests/cudasim/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cudasim {
namespace {

// "void heddle::cuda::scale<float>(float*, float, int)" -> "heddle::cuda::scale<float>".
std::string without_signature(std::string text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    const bool anonymous = text.compare(i, 21, "(anonymous namespace)") == 0;
    if (depth == 0 && text[i] == '(' && !anonymous) {
      text.resize(i);
      break;
    }
  }
  // A template's name begins with its return type.
  depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == '>') ++depth;
    if (text[i] == '<') --depth;
    if (depth == 0 && text[i] == ' ' && text.compare(i, 11, " namespace)") != 0) return text.substr(i + 1);
  }
  return text;
}

// The name at an offset from the start of a loaded file, from its full symbol table.
std::string name_in_file(const char* path, std::uintptr_t offset) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status = {};
  fstat(file, &status);
  const auto nbytes = static_cast<std::size_t>(status.st_size);
  void* mapping = nbytes < sizeof(Elf64_Ehdr) ? MAP_FAILED : mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapping == MAP_FAILED) return {};
  const auto* bytes = static_cast<const char*>(mapping);
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes + header->e_shoff);
  std::string name;
  for (int i = 0; i < header->e_shnum && name.empty(); ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes + sections[i].sh_offset);
    const char* names = bytes + sections[sections[i].sh_link].sh_offset;
    for (std::size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC && symbols[s].st_value == offset) {
        name = readable_name(names + symbols[s].st_name);
        break;
      }
    }
  }
  munmap(mapping, nbytes);
  return name;
}

}  // namespace

std::string readable_name(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : mangled;
  std::free(text);
  return without_signature(result);
}

std::string symbol_name(const void* function) {
  Dl_info info = {};
  if (dladdr(function, &info) == 0) return "unknown function";
  if (info.dli_sname != nullptr && info.dli_saddr == function) return readable_name(info.dli_sname);
  const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  const auto address = reinterpret_cast<std::uintptr_t>(function);
  const auto* header = static_cast<const Elf64_Ehdr*>(info.dli_fbase);
  // Symbols of a program that is not position-independent hold addresses.
  const std::uintptr_t value = header->e_type == ET_EXEC ? address : address - base;
  if (std::string name = name_in_file(info.dli_fname, value); !name.empty()) return name;
  char text[512];
  std::snprintf(text, sizeof(text), "%s+0x%zx", info.dli_fname, static_cast<std::size_t>(address - base));
  return text;
}

}  // namespace cudasim
