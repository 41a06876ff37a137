#include "datasets/fetch.h"

#include <filesystem>

#include "datasets/download.h"
#include "datasets/unpacked_reader.h"
#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/contains.h"
#include "tests/support/gzip.h"
#include "tests/support/http_server.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::datasets;
using namespace heddle::test;

namespace {

const std::string kContent = idx_header({40, 28, 28}) + noise_bytes(40 * 784);
const std::string kPacked = gzip(kContent);
const std::string kSmall = idx_header({3}) + "abc";

// A mirror in a folder with two files, and options that fetch them into another folder.
struct Setup {
  TempFolder folder;
  std::string mirror = folder / "mirror";
  std::string target = folder / "target/new";
  FetchOptions options;
  std::string messages;

  explicit Setup(const std::string& url = {}) {
    std::filesystem::create_directory(mirror);
    put_file(mirror + "/images.gz", kPacked);
    put_file(mirror + "/labels.gz", gzip(kSmall));
    options.folder = target;
    options.files = {{"images", crc32_of(to_bytes(kContent)), kContent.size()},
                     {"labels", crc32_of(to_bytes(kSmall)), kSmall.size()}};
    options.mirrors = {url.empty() ? "file://" + mirror : url};
    options.on_message = [this](const std::string& line) { messages += line + "\n"; };
  }
  Setup(const Setup&) = delete;
  std::string failure() {
    return message_of<IoError>([&] { fetch_fashion_mnist(options); });
  }
  bool complete() const { return get_file(target + "/images.gz") == kPacked; }
  void begin_part(const std::string& content) {
    std::filesystem::create_directories(target);
    put_file(target + "/images.gz.part", content);
  }
};

bool can_download() {
  if (!find_download_program().empty()) return true;
  WARN("skipped: neither curl nor wget is there");
  return false;
}

// curl reads file:// URLs; wget does not.
bool can_download_files() {
  const bool curl = find_download_program().find("curl") != std::string::npos;
  if (!curl) WARN("skipped: curl is not there");
  return curl;
}

}  // namespace

TEST_CASE("fetch downloads what is missing and then has nothing to do") {
  if (!can_download_files()) return;
  Setup setup;
  std::vector<FetchedFile> files = fetch_fashion_mnist(setup.options);
  REQUIRE(files.size() == 2);
  CHECK(files[0].path == setup.target + "/images.gz");
  CHECK(files[0].url == "file://" + setup.mirror + "/images.gz");
  CHECK(setup.complete());
  CHECK_FALSE(std::filesystem::exists(setup.target + "/images.gz.part"));
  for (const VerifiedFile& file : verify_fashion_mnist(setup.target, setup.options.files)) CHECK(file.ok);

  std::filesystem::remove_all(setup.mirror);
  files = fetch_fashion_mnist(setup.options);
  CHECK(files[0].url.empty());
  CHECK(files[1].url.empty());
}

TEST_CASE("fetch takes unpacked files that are already there") {
  Setup setup;
  std::filesystem::create_directories(setup.target);
  put_file(setup.target + "/images", kContent);
  put_file(setup.target + "/labels", kSmall);
  setup.options.mirrors.clear();
  CHECK(fetch_fashion_mnist(setup.options)[0].path == setup.target + "/images");
  // Nothing was written: a package's folder is read-only.
  CHECK_FALSE(std::filesystem::exists(setup.target + "/.fetch.lock"));
}

TEST_CASE("fetch continues an interrupted download") {
  if (!can_download_files()) return;
  Setup setup;
  setup.begin_part(kPacked.substr(0, 10000));
  fetch_fashion_mnist(setup.options);
  CHECK(setup.complete());
  contains(setup.messages, "continuing file://");
}

TEST_CASE("fetch begins anew when the part is of another file") {
  if (!can_download_files()) return;
  const std::string part = GENERATE(std::string(5000, 'x'), kPacked + "more than there is", std::string());
  Setup setup;
  setup.begin_part(part);
  fetch_fashion_mnist(setup.options);
  CHECK(setup.complete());
}

TEST_CASE("fetch finishes a download that is complete but not renamed") {
  Setup setup;
  setup.options.mirrors.clear();
  setup.options.files.pop_back();
  setup.begin_part(kPacked);
  fetch_fashion_mnist(setup.options);
  CHECK(setup.complete());
}

TEST_CASE("fetch refuses wrong content and goes on to the next mirror") {
  if (!can_download_files()) return;
  Setup setup;
  const std::string bad = setup.folder / "bad";
  std::filesystem::create_directory(bad);
  std::string other = kContent;
  other[5000] = static_cast<char>(other[5000] ^ 1);
  put_file(bad + "/images.gz", gzip(other));
  setup.options.mirrors = {"file://" + bad, "file://" + bad + "/"};
  const std::string text = setup.failure();
  contains(text,
           setup.target + "/images.gz: could not be downloaded; tried:\n  file://" + bad + "/images.gz: has checksum ");
  contains(text, "dataset-fashion-mnist");
  CHECK_FALSE(std::filesystem::exists(setup.target + "/images.gz"));
  CHECK_FALSE(std::filesystem::exists(setup.target + "/images.gz.part"));

  setup.options.mirrors.push_back("file://" + setup.mirror);
  CHECK(fetch_fashion_mnist(setup.options)[0].url == "file://" + setup.mirror + "/images.gz");
  CHECK(setup.complete());
}

TEST_CASE("fetch names HTML pages, files cut off and files too large") {
  if (!can_download_files()) return;
  Setup setup;
  put_file(setup.mirror + "/images.gz", "<!DOCTYPE html><html><body>Please log in</body></html>");
  contains(setup.failure(), "(an HTML or XML page)");
  put_file(setup.mirror + "/images.gz", kPacked.substr(0, 20000));
  contains(setup.failure(), "gzip data is cut off at byte 20000");
  put_file(setup.mirror + "/images.gz", std::string(200000, 'x'));
  contains(setup.failure(), "/images.gz: ");
  put_file(setup.mirror + "/images.gz", gzip(kContent + std::string(1 << 24, 'x')));
  contains(setup.failure(), "/images.gz: ");
  CHECK_FALSE(std::filesystem::exists(setup.target + "/images.gz"));
}

TEST_CASE("fetch says for every mirror why it failed, and keeps what was received") {
  if (!can_download()) return;
  Setup setup;
  setup.begin_part(kPacked.substr(0, 100));
  setup.options.connect_timeout = std::chrono::seconds(2);
  setup.options.mirrors = {"http://127.0.0.1:9/", "http://no-such-host.invalid/a"};
  const std::string text = setup.failure();
  contains(text, "\n  http://127.0.0.1:9/images.gz: ");
  contains(text, "\n  http://no-such-host.invalid/a/images.gz: ");
  contains(text, "\nWithout network install");
  CHECK(get_file(setup.target + "/images.gz.part") == kPacked.substr(0, 100));
}

TEST_CASE("fetch works over HTTP with curl and with wget, also from a server that cannot continue") {
  const TempFolder served;
  const HttpServer server(served.path());
  if (server.url().empty() || !can_download()) {
    WARN("skipped: no python3");
    return;
  }
  put_file(served / "images.gz", kPacked);
  put_file(served / "labels.gz", gzip(kSmall));
  for (const char* program : {"/usr/bin/curl", "/usr/bin/wget"}) {
    if (!std::filesystem::exists(program)) continue;
    INFO(program);
    {
      Setup setup(server.url());
      setup.options.program = program;
      CHECK(fetch_fashion_mnist(setup.options).size() == 2);
      CHECK(setup.complete());
    }
    {
      Setup setup(server.url());
      setup.options.program = program;
      setup.begin_part(kPacked.substr(0, 10000));
      fetch_fashion_mnist(setup.options);
      CHECK(setup.complete());
    }
    Setup setup(server.url() + "none/");
    setup.options.program = program;
    contains(setup.failure(), "404");
    CHECK_FALSE(std::filesystem::exists(setup.target + "/images.gz"));
  }
}

TEST_CASE("fetch leaves a wrong file of the user alone") {
  Setup setup;
  std::filesystem::create_directories(setup.target);
  put_file(setup.target + "/images", "mine");
  contains(setup.failure(), setup.target + "/images: ");
  contains(setup.failure(), "is left alone");
  CHECK(get_file(setup.target + "/images") == "mine");
}

TEST_CASE("fetch can be stopped") {
  if (!can_download_files()) return;
  Setup setup;
  setup.options.on_progress = [](const std::string&, std::uint64_t) { return false; };
  // A quick download may end before the first question.
  REQUIRE(::mkfifo((setup.mirror + "/images").c_str(), 0600) == 0);
  std::filesystem::remove(setup.mirror + "/images.gz");
  std::filesystem::rename(setup.mirror + "/images", setup.mirror + "/images.gz");
  contains(setup.failure(), "fetch stopped");
}

TEST_CASE("two processes that fetch into one folder both succeed") {
  if (!can_download_files()) return;
  Setup setup;
  const auto fetch = [&] { return std::to_string(fetch_fashion_mnist(setup.options).size()); };
  const ChildResult result = run_in_child([&] {
    const pid_t other = ::fork();
    std::string text;
    try {
      text = fetch();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (other == 0) ::_exit(text == "2" ? 0 : 1);
    int status = 0;
    ::waitpid(other, &status, 0);
    return text + (status == 0 ? " both" : " one");
  });
  CHECK(result.text == "2 both");
  CHECK(setup.complete());
}

TEST_CASE("a folder that cannot be made is refused") {
  Setup setup;
  put_file(setup.folder / "file", "");
  setup.options.folder = setup.folder / "file/x";
  contains(setup.failure(), "cannot be created as a folder");
}

TEST_CASE("verify reports each file") {
  Setup setup;
  std::filesystem::create_directories(setup.target);
  put_file(setup.target + "/labels", idx_header({3}) + "abd");
  const std::vector<VerifiedFile> files = verify_fashion_mnist(setup.target, setup.options.files);
  REQUIRE(files.size() == 2);
  CHECK_FALSE(files[0].ok);
  contains(files[0].problem, "No such file");
  CHECK_FALSE(files[1].ok);
  contains(files[1].problem, "has checksum ");
  CHECK(verify_fashion_mnist(setup.folder / "none").size() == 4);
}

TEST_CASE("only URLs of known kinds are downloaded") {
  const TempFolder folder;
  CHECK_THROWS_AS(download("ftp://x/y", folder / "a"), InvalidArgument);
  CHECK_THROWS_AS(download("--help", folder / "a"), InvalidArgument);
  if (!can_download()) return;
  CHECK_THROWS_AS(download("http://127.0.0.1:9/", folder / "a", {.program = "/no/such/curl"}), IoError);
}
