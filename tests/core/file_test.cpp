// Atomic files: case C14's parts that concern files.
#include "engine/core/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an atomic file appears at commit and not before") {
  const TempFolder folder;
  const std::string path = folder / "a";
  {
    AtomicFile file(path);
    file.write("hello ");
    file.write("world");
    CHECK(file.nbytes() == 11);
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK(std::filesystem::exists(file.temp_path()));
    file.commit();
    CHECK(get_file(path) == "hello world");
    CHECK_THROWS_AS(file.write("more"), InvalidArgument);
    CHECK_THROWS_AS(file.commit(), InvalidArgument);
  }
  CHECK(get_file(path) == "hello world");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("an atomic file that is not committed leaves the old file and no other") {
  const TempFolder folder;
  put_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
  }
  CHECK(get_file(folder / "a") == "old");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("an atomic file keeps permissions and follows a symbolic link") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "real");
  put_file(folder / "real/a", "old");
  REQUIRE(::chmod((folder / "real/a").c_str(), 0640) == 0);
  std::filesystem::create_symlink("real/a", folder / "link");
  write_file_atomically(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(get_file(folder / "real/a") == "new");
  struct stat info {};
  REQUIRE(::stat((folder / "real/a").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0640);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  CHECK(contains(message_of<IoError>([&] { AtomicFile file(folder / "dangling"); }), "leads nowhere"));
}

TEST_CASE("two writers of one path do not disturb each other") {
  const TempFolder folder;
  AtomicFile a(folder / "x");
  AtomicFile b(folder / "x");
  a.write("aaaa");
  b.write("bb");
  b.commit();
  CHECK(get_file(folder / "x") == "bb");
  a.commit();
  CHECK(get_file(folder / "x") == "aaaa");
}

TEST_CASE("targets that cannot be files are refused with path and reason before anything is written") {
  const TempFolder folder;
  const auto reason = [](const std::string& path) { return message_of<IoError>([&] { AtomicFile file(path); }); };
  std::filesystem::create_directory(folder / "d");
  put_file(folder / "f", "");
  CHECK(reason(folder / "d") == (folder / "d") + ": cannot be written: it is a directory, expected a file or nothing");
  CHECK(contains(reason(folder / "d/"), "it is a directory"));
  CHECK(contains(reason(folder / "new/"), "names a directory"));
  CHECK(contains(reason(folder / "none/x"), (folder / "none/x") + ": cannot be written: "));
  CHECK(contains(reason(folder / "none/x"), "No such file or directory"));
  CHECK(contains(reason(folder / "f/x"), "Not a directory"));
  CHECK(contains(reason("/dev/full"), "/dev/full: cannot be written: it is a device"));
  CHECK(contains(reason(""), "empty path"));
  CHECK(contains(reason(std::string("a\0b", 3)), "NUL"));
  CHECK(std::filesystem::is_character_file("/dev/full"));
  CHECK(contains(reason("/proc/heddle-test"), "/proc/heddle-test: cannot be written"));
}

TEST_CASE("a long file name is written too") {
  const TempFolder folder;
  const std::string path = folder / std::string(255, 'n');
  write_file_atomically(path, "x");
  CHECK(get_file(path) == "x");
}

TEST_CASE("a read-only folder is refused with path and reason") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "d");
  REQUIRE(::chmod((folder / "d").c_str(), 0555) == 0);
  const ChildResult result = run_in_child([&] {
    // Root may write everywhere, so give that up.
    if (::geteuid() == 0 && (::chmod(folder.path().c_str(), 0755) != 0 || ::setuid(65534) != 0))
      return std::string("skipped");
    write_file_atomically(folder / "d/x", "y");
    return std::string("written");
  });
  CHECK(result.text == "exception: " + (folder / "d/x") +
                           ": cannot be written: no file can be created in its folder: Permission denied");
}

TEST_CASE("a file-size limit is an error and no signal, and the old file stays") {
  const TempFolder folder;
  put_file(folder / "a", "old");
  const ChildResult result = run_in_child([&] {
    ::signal(SIGXFSZ, SIG_DFL);
    rlimit limit{4096, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return std::string("no limit");
    AtomicFile file(folder / "a");
    const std::string content(3000, 'x');
    file.write(content);
    const std::string text = message_of<IoError>([&] { file.write(content); });
    if (message_of<InvalidArgument>([&] { file.commit(); }).empty()) return std::string("committed half a file");
    // The signal is neither pending nor blocked afterwards.
    sigset_t signals;
    sigpending(&signals);
    if (sigismember(&signals, SIGXFSZ) == 1) return std::string("signal is pending");
    pthread_sigmask(SIG_SETMASK, nullptr, &signals);
    if (sigismember(&signals, SIGXFSZ) == 1) return std::string("signal is blocked");
    return text;
  });
  CHECK(result.ended_well());
  CHECK(result.text == (folder / "a") + ": cannot be written at byte 4096: File too large");
  CHECK(get_file(folder / "a") == "old");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("leftovers of dead processes are removed, files of living ones and other files are not") {
  const TempFolder folder;
  put_file(folder / ".a.tmp-123-0123456789abcdef", "left");
  put_file(folder / ".a.tmp-123-0123456789abcde", "not ours: too short");
  put_file(folder / "a.tmp-123-0123456789abcdef", "not ours: no dot");
  put_file(folder / ".a.tmp-x-0123456789abcdef", "not ours: no process");
  AtomicFile living(folder / "b");
  living.write("b");
  CHECK(remove_stale_temp_files(folder.path()) == 1);
  CHECK(folder.num_files() == 4);
  living.commit();
  CHECK(get_file(folder / "b") == "b");
  CHECK(remove_stale_temp_files(folder / "none") == 0);
  CHECK(remove_stale_temp_files(folder.path()) == 0);
}

TEST_CASE("clean-up and writers at the same time lose no file") {
  const TempFolder folder;
  const ChildResult result = run_in_child([&] {
    const pid_t cleaner = ::fork();
    if (cleaner == 0) {
      for (;;) remove_stale_temp_files(folder.path());
    }
    for (int i = 0; i < 300; ++i) write_file_atomically(folder / std::to_string(i), "x");
    ::kill(cleaner, SIGKILL);
    ::waitpid(cleaner, nullptr, 0);
    return std::string("done");
  });
  CHECK(result.text == "done");
  CHECK(folder.num_files() == 300);
}

TEST_CASE("read_file reads whole files up to a limit") {
  const TempFolder folder;
  put_file(folder / "a", std::string(10000, 'a'));
  CHECK(read_file(folder / "a", 10000) == std::string(10000, 'a'));
  CHECK(message_of<IoError>([&] { read_file(folder / "a", 9999); }) ==
        (folder / "a") + ": has 10000 bytes, at most 9999 expected");
  CHECK(contains(message_of<IoError>([&] { read_file(folder / "b", 1); }), "No such file"));
  CHECK(contains(message_of<IoError>([&] { read_file(folder.path(), 1); }), "is a directory"));
  CHECK_FALSE(read_file("/proc/self/status", 1 << 20).empty());
  CHECK_THROWS_AS(read_file("/proc/self/status", 100), IoError);
  put_file(folder / "empty", "");
  CHECK(read_file(folder / "empty", 0).empty());
}

TEST_CASE("folders are created with those above, and what is in the way is named") {
  const TempFolder folder;
  create_folders(folder / "a/b/c");
  create_folders(folder / "a/b/c");
  CHECK(std::filesystem::is_directory(folder / "a/b/c"));
  put_file(folder / "f", "");
  CHECK(contains(message_of<IoError>([&] { create_folders(folder / "f/g/h"); }), join_text("(", folder / "f", ")")));
  CHECK(contains(message_of<IoError>([&] { create_folders(folder / "f"); }), "cannot be created as a folder"));
}
