#include "engine/core/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>

namespace heddle {
namespace {

constexpr std::size_t kMaxIoNbytes = std::size_t{1} << 30;  // Linux moves at most 2 GiB a call
constexpr std::size_t kRandomDigits = 16;
constexpr std::string_view kTempMark = ".tmp-";

// While it lives, a SIGXFSZ caused by this thread is held back, and swallowed at the end.
class HoldFileSizeSignal {
 public:
  HoldFileSizeSignal() noexcept {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    held_ = pthread_sigmask(SIG_BLOCK, &signals_, &before_) == 0;
  }
  HoldFileSizeSignal(const HoldFileSizeSignal&) = delete;
  HoldFileSizeSignal& operator=(const HoldFileSizeSignal&) = delete;
  ~HoldFileSizeSignal() {
    if (!held_) return;
    if (too_large && !was_pending_) {
      const timespec no_wait{};
      while (sigtimedwait(&signals_, nullptr, &no_wait) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  bool too_large = false;  // set when a write gave EFBIG

 private:
  sigset_t signals_;
  sigset_t before_;
  bool was_pending_ = false;
  bool held_ = false;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_in_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// True for the names that AtomicFile gives: ".<name>.tmp-<pid>-<16 hexadecimal digits>".
bool is_temp_name(std::string_view name) {
  const auto mark = name.rfind(kTempMark);
  if (name.empty() || name[0] != '.' || mark == std::string_view::npos || mark == 0) return false;
  const std::string_view tail = name.substr(mark + kTempMark.size());
  const auto dash = tail.find('-');
  if (dash == std::string_view::npos || dash == 0 || tail.size() - dash - 1 != kRandomDigits) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_hex = [&](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); };
  return std::all_of(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(dash), is_digit) &&
         std::all_of(tail.begin() + static_cast<std::ptrdiff_t>(dash) + 1, tail.end(), is_hex);
}

void flush_folder_of(const std::string& path, const std::string& shown_path) {
  const FileHandle folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder that may not be read can still be written; some file systems cannot flush folders. Neither is a failure.
  if (!folder) return;
  if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) {
    throw IoError(shown_path, "is written, but its folder could not be flushed to the disk: " + errno_text(errno));
  }
}

}  // namespace

std::string errno_text(int error) { return std::generic_category().message(error); }

int FileHandle::reset() noexcept {
  if (fd_ < 0) return 0;
  return ::close(std::exchange(fd_, -1));
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  if (path_.find('\0') != std::string::npos) throw IoError(path_.c_str(), "the path contains a NUL character");
  // O_NONBLOCK: a pipe without a writer would block here for ever; it does nothing on a regular file.
  handle_ = FileHandle(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!handle_) throw IoError(path_, "cannot be opened: " + errno_text(errno));
  struct stat info {};
  if (::fstat(handle_.get(), &info) != 0) throw IoError(path_, "cannot be examined: " + errno_text(errno));
  if (!S_ISREG(info.st_mode)) throw IoError(path_, join_text("is ", kind_of(info.st_mode), ", expected a file"));
  nbytes_ = static_cast<std::uint64_t>(info.st_size);
}

std::size_t InputFile::read_at(std::uint64_t offset, void* data, std::size_t nbytes) const {
  std::size_t done = 0;
  while (done < nbytes) {
    const ssize_t n = ::pread(handle_.get(), static_cast<char*>(data) + done, std::min(nbytes - done, kMaxIoNbytes),
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError(path_, join_text("cannot be read at byte ", offset + done, ": ", errno_text(errno)));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

std::string read_file(const std::string& path, std::uint64_t max_nbytes) {
  const InputFile file(path);
  const auto refuse_above_limit = [&](std::uint64_t nbytes) {
    if (nbytes > max_nbytes)
      throw IoError(path, join_text("has ", nbytes, " bytes, at most ", max_nbytes, " expected"));
  };
  refuse_above_limit(file.nbytes());
  // Files in /proc and /sys say that they have 0 bytes, so the size is only a hint.
  std::string content(static_cast<std::size_t>(file.nbytes()), '\0');
  std::size_t done = 0;
  for (;;) {
    done += file.read_at(done, content.data() + done, content.size() - done);
    if (done < content.size()) break;
    char more[4096];
    const std::size_t n = file.read_at(done, more, sizeof more);
    if (n == 0) break;
    refuse_above_limit(done + n);
    content.append(more, n);
    done += n;
  }
  content.resize(done);
  return content;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(path_) {
  if (path_.empty()) throw IoError(path_, "an empty path cannot be written");
  if (path_.find('\0') != std::string::npos) throw IoError(path_.c_str(), "the path contains a NUL character");
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    char* resolved = ::realpath(path_.c_str(), nullptr);
    if (resolved == nullptr) throw IoError(path_, "is a symbolic link that leads nowhere: " + errno_text(errno));
    target_ = resolved;
    std::free(resolved);
  }
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) throw IoError(path_, "cannot be written: " + errno_text(errno));
  if (exists && !S_ISREG(info.st_mode)) {
    throw IoError(path_, join_text("cannot be written: it is ", kind_of(info.st_mode), ", expected a file or nothing"));
  }
  if (name_in_folder(target_).empty()) throw IoError(path_, "cannot be written: it names a directory");
  open_temp();
  // A failure to keep the old permissions (another owner) is no reason to refuse the new content.
  if (exists && ::fchmod(handle_.get(), info.st_mode & 07777) != 0) errno = 0;
}

void AtomicFile::open_temp() {
  // Some file systems limit a name to 255 bytes, so a long one is shortened.
  const std::string stem = folder_of(target_) + "/." + name_in_folder(target_).substr(0, 200);
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t number = (static_cast<std::uint64_t>(random()) << 32) | random();
    char tail[64];
    std::snprintf(tail, sizeof tail, "-%016llx", static_cast<unsigned long long>(number));
    const std::string temp = join_text(stem, kTempMark, ::getpid(), tail);
    FileHandle handle(::open(temp.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!handle) {
      if (errno == EEXIST || errno == EINTR) continue;
      throw IoError(path_, "cannot be written: no file can be created in its folder: " + errno_text(errno));
    }
    // The lock tells remove_stale_temp_files that this process lives. If the clean-up came between open and lock, the
    // file is already gone: take another one. A file system without locks gives another error and is used without.
    const bool lost = (::flock(handle.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    struct stat info {};
    if (lost || ::fstat(handle.get(), &info) != 0 || info.st_nlink == 0) continue;
    temp_path_ = temp;
    handle_ = std::move(handle);
    return;
  }
  throw IoError(path_, "cannot be written: no free name for a temporary file in its folder");
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (temp_path_.empty()) return;
  ::unlink(temp_path_.c_str());
  temp_path_.clear();
  handle_.reset();
}

void AtomicFile::write(const void* data, std::size_t nbytes) {
  HEDDLE_CHECK(handle_, "AtomicFile: write after commit or failure; file ", path_);
  HoldFileSizeSignal hold;
  std::size_t done = 0;
  while (done < nbytes) {
    const ssize_t n =
        ::write(handle_.get(), static_cast<const char*>(data) + done, std::min(nbytes - done, kMaxIoNbytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      hold.too_large = error == EFBIG;
      discard();  // half a file must not be committed, and a full disk needs its space back
      throw IoError(path_, join_text("cannot be written at byte ", nbytes_, ": ", errno_text(error)));
    }
    done += static_cast<std::size_t>(n);
    nbytes_ += static_cast<std::uint64_t>(n);
  }
}

void AtomicFile::commit() {
  HEDDLE_CHECK(handle_, "AtomicFile: commit after commit or failure; file ", path_);
  int error = 0;
  if (::fsync(handle_.get()) != 0 || ::rename(temp_path_.c_str(), target_.c_str()) != 0) error = errno;
  if (error != 0) {
    discard();
    throw IoError(path_, "cannot be put in place: " + errno_text(error));
  }
  temp_path_.clear();
  if (handle_.reset() != 0) throw IoError(path_, "cannot be closed: " + errno_text(errno));
  flush_folder_of(target_, path_);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void flush_and_rename(const std::string& from, const std::string& to) {
  FileHandle handle(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!handle || ::fsync(handle.get()) != 0) throw IoError(from, "cannot be flushed: " + errno_text(errno));
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw IoError(to, join_text("cannot be put in place from ", from, ": ", errno_text(errno)));
  }
  flush_folder_of(to, to);
}

int remove_stale_temp_files(const std::string& folder) noexcept {
  int removed = 0;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return 0;
  const int folder_fd = ::dirfd(stream);
  while (const dirent* entry = ::readdir(stream)) {
    if (!is_temp_name(entry->d_name)) continue;
    const FileHandle file(::openat(folder_fd, entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;  // its writer lives
    if (::unlinkat(folder_fd, entry->d_name, 0) == 0) ++removed;
  }
  ::closedir(stream);
  return removed;
}

void create_folders(const std::string& folder) {
  std::error_code error;
  // Another process may remove a folder above, still empty, between two of the steps.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::filesystem::create_directories(folder, error);
    if (error != std::errc::no_such_file_or_directory) break;
  }
  if (!error && std::filesystem::is_directory(folder, error)) return;
  // Name the first part that is no folder: "a/b/c: Not a directory" does not say which.
  std::string part = folder;
  const auto is_link = [&] {
    std::error_code ignored;
    return std::filesystem::is_symlink(part, ignored);
  };
  for (std::error_code ignored; part != "/" && part != "." && !std::filesystem::exists(part, ignored) && !is_link();) {
    part = folder_of(part);
  }
  std::string reason = error ? error.message() : errno_text(ENOTDIR);
  if (std::error_code ignored; is_link() && !std::filesystem::exists(part, ignored)) {
    reason = "it is a symbolic link that leads nowhere";
  }
  throw IoError(folder, join_text("cannot be created as a folder: ", reason, " (", part, ")"));
}

}  // namespace heddle
