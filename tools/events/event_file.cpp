#include "tools/events/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <vector>

#include "tools/events/crc32c.h"
#include "tools/events/event.h"
#include "tools/system_info.h"

namespace heddle::tools {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
// Tells the files of this program from those of others, which it must not cut.
constexpr std::string_view kSuffix = ".heddle";
// A record: length, checksum of the length, data, checksum of the data.
constexpr std::size_t kHeaderNbytes = 12, kFooterNbytes = 4;
constexpr std::uint64_t kMaxEventNbytes = std::uint64_t{64} << 20;

std::string little_endian(std::uint64_t value, int nbytes) {
  std::string bytes;
  for (int i = 0; i < nbytes; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::vector<std::filesystem::path> event_files(const std::string& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && entry->is_regular_file())
      found.push_back(entry->path());
  }
  if (error) throw IoError(folder, "cannot be read: " + error.message());
  return found;
}

// The time in a file's name; 0 if there is none.
std::int64_t time_in_name(const std::filesystem::path& path) {
  std::int64_t time = 0;
  for (const char c : path.filename().string().substr(kPrefix.size())) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 || time > 9'999'999'999) break;
    time = time * 10 + (c - '0');
  }
  return time;
}

// Host names become a part of a file name.
std::string plain(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '-';
  }
  return name.substr(0, 60);
}

// The event of the whole record at the offset; empty if there is none.
std::string read_event(const InputFile& file, std::uint64_t offset) {
  std::string header(kHeaderNbytes, '\0');
  if (file.read_at(offset, header.data(), header.size()) < header.size()) return {};
  const std::string_view length_bytes = std::string_view(header).substr(0, 8);
  const std::uint64_t nbytes = from_little_endian(length_bytes);
  if (from_little_endian(std::string_view(header).substr(8)) != masked_crc32c(length_bytes)) return {};
  if (nbytes > kMaxEventNbytes) return {};
  std::string event(static_cast<std::size_t>(nbytes) + kFooterNbytes, '\0');
  if (file.read_at(offset + kHeaderNbytes, event.data(), event.size()) < event.size()) return {};
  const std::uint64_t checksum = from_little_endian(std::string_view(event).substr(event.size() - kFooterNbytes));
  event.resize(static_cast<std::size_t>(nbytes));
  return checksum == masked_crc32c(event) ? event : std::string();
}

// Bytes of the file up to its first record that is broken or of a later step.
std::uint64_t nbytes_until(const InputFile& file, std::int64_t step) {
  std::uint64_t offset = 0;
  for (;;) {
    const std::string event = read_event(file, offset);
    if (event.empty()) return offset;
    const auto found = step_of_event(event);
    if (!found || *found > step) return offset;
    offset += kHeaderNbytes + event.size() + kFooterNbytes;
  }
}

}  // namespace

EventFile::EventFile(const std::string& folder) {
  auto time = static_cast<std::int64_t>(wall_time_now());
  for (const auto& file : event_files(folder)) time = std::max(time, time_in_name(file) + 1);
  path_ = fmt::format("{}/{}{:010}.{}.{}{}", folder, kPrefix, time, plain(host_name()), ::getpid(), kSuffix);
  handle_ = FileHandle(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!handle_) throw IoError(path_, errno_text(errno));
  append(encode_version_event(wall_time_now()));
}

void EventFile::append(std::string_view event) {
  const std::string length = little_endian(event.size(), 8);
  std::string record = length + little_endian(masked_crc32c(length), 4);
  record += event;
  record += little_endian(masked_crc32c(event), 4);
  const ssize_t n = ::write(handle_.get(), record.data(), record.size());
  if (n == static_cast<ssize_t>(record.size())) return;
  throw IoError(path_, n < 0 ? errno_text(errno) : "only a part of a record could be written; is the disk full?");
}

void drop_events_after(const std::string& folder, std::int64_t step) {
  for (const auto& path : event_files(folder)) {
    std::uint64_t kept = 0;
    {
      const InputFile file(path.string());
      kept = nbytes_until(file, step);
      if (kept == file.nbytes()) continue;
    }
    if (::truncate(path.c_str(), static_cast<off_t>(kept)) != 0) throw IoError(path.string(), errno_text(errno));
  }
}

double wall_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace heddle::tools
