// Files that are read with checks and replaced as a whole or not at all. Used by checkpoints, data sets and the
// trainer; knows nothing of any format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "error.h"

namespace heddle {

// Owns one POSIX file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) noexcept : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileHandle() { reset(); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Closes the descriptor now and returns what close() returned; 0 if there was none.
  int reset() noexcept;

 private:
  int fd_ = -1;
};

// A regular file opened for reading at offsets. It is not mapped into memory: a file that shrinks while it is read
// gives a short count, never a signal.
class InputFile {
 public:
  // Throws: IoError if the file is missing, unreadable, a directory or anything else but a regular file.
  explicit InputFile(std::string path);
  const std::string& path() const noexcept { return path_; }
  // Bytes the file had when it was opened.
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  // Reads up to nbytes at offset into data and returns how many there were; fewer only at the end of the file.
  // Throws: IoError.
  std::size_t read_at(std::uint64_t offset, void* data, std::size_t nbytes) const;

 private:
  std::string path_;
  FileHandle handle_;
  std::uint64_t nbytes_ = 0;
};

// The whole file. Throws: IoError if it cannot be read or has more than max_nbytes.
std::string read_file(const std::string& path, std::uint64_t max_nbytes);

// Writes a file aside, in the folder of its target, and puts it in place with commit(): whoever opens the target sees
// the old or the new content, whole, also if this process is killed or the machine stops. Without commit() nothing
// remains. A symbolic link is followed, so its target is replaced. Permissions of an existing target are kept. A
// file-size limit (RLIMIT_FSIZE) gives an IoError: SIGXFSZ is held back in the writing thread during each write, so the
// host program need not change its handling of that signal.
class AtomicFile {
 public:
  // Throws: IoError if the folder is missing or read-only, or if path is a directory, a device or a pipe.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::string& path() const noexcept { return path_; }
  // Where the bytes are until commit().
  const std::string& temp_path() const noexcept { return temp_path_; }
  // Bytes written so far.
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  // Appends. Throws: IoError with the target's path, the offset and the reason (disk full, file too large, ...).
  void write(const void* data, std::size_t nbytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes to the disk, renames, and flushes the folder. At most once, last. Throws: IoError; the old file is then
  // still there, unless only the last flush of the folder failed, which the message says.
  void commit();

 private:
  void open_temp();
  void discard() noexcept;

  std::string path_;
  std::string target_;  // path_ with symbolic links followed
  std::string temp_path_;
  FileHandle handle_;
  std::uint64_t nbytes_ = 0;
};

// write + commit in one call.
void write_file_atomically(const std::string& path, std::string_view content);

// Flushes file `from`, renames it to `to` in the same file system, and flushes the folder of `to`. Throws: IoError.
void flush_and_rename(const std::string& from, const std::string& to);

// Deletes what AtomicFiles of dead processes left in a folder and returns how many files that were. Files that a living
// process (of any host that shares the file locks) still writes are kept. A folder that is missing counts 0. Never
// throws.
int remove_stale_temp_files(const std::string& folder) noexcept;

// Creates a folder and those above it. Throws: IoError naming the part that is in the way.
void create_folders(const std::string& folder);

// The text of an errno value.
std::string errno_text(int error);

}  // namespace heddle
