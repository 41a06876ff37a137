#include "datasets/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "datasets/download.h"
#include "datasets/idx_file.h"
#include "engine/core/file.h"

namespace heddle::datasets {
namespace {

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

std::string hex32(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

// Reads one file and compares it with what was published.
VerifiedFile verify_file(const std::string& path, const KnownFile& known) {
  VerifiedFile result;
  result.path = path;
  try {
    const IdxFile file = read_idx_file(path, {.max_nbytes = known.nbytes});
    result.crc32 = file.payload_crc32;
    result.nbytes = file.payload_nbytes;
    if (file.payload_nbytes != known.nbytes) {
      result.problem = join_text("has ", file.payload_nbytes, " bytes unpacked, expected ", known.nbytes);
    } else if (file.payload_crc32 != known.crc32) {
      result.problem = "has checksum " + hex32(file.payload_crc32) + ", expected " + hex32(known.crc32);
    } else {
      result.ok = true;
    }
  } catch (const IoError& error) {
    result.problem = error.what();
    // The path is in the result already.
    if (result.problem.rfind(path + ": ", 0) == 0) result.problem.erase(0, path.size() + 2);
  }
  return result;
}

// Held while one process downloads into a folder; released by the kernel if that process dies.
class FolderLock {
 public:
  FolderLock(const std::string& folder, const FetchOptions& options) {
    const std::string path = folder + "/.fetch.lock";
    handle_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!handle_) throw IoError(path, "cannot be created: " + errno_text(errno));
    bool told = false;
    while (::flock(handle_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) throw IoError(path, "cannot be locked: " + errno_text(errno));
      if (!std::exchange(told, true) && options.on_message) {
        options.on_message("waiting for another fetch into " + folder);
      }
      if (options.on_progress && !options.on_progress("", 0)) throw IoError(folder, "fetch stopped");
      ::usleep(100000);
    }
  }

 private:
  FileHandle handle_;
};

class Fetcher {
 public:
  Fetcher(const FetchOptions& options, std::string folder) : options_(options), folder_(std::move(folder)) {}

  FetchedFile fetch(const KnownFile& known) {
    const std::string plain = folder_ + "/" + std::string(known.name);
    const std::string packed = plain + ".gz";
    for (const std::string& path : {plain, packed}) {
      if (!exists(path)) continue;
      const VerifiedFile found = verify_file(path, known);
      if (found.ok) return {path, ""};
      throw IoError(
          path,
          found.problem + "; it is not the published file and is left alone: delete it, or fetch into another folder");
    }
    const std::string part = packed + ".part";
    // Complete, but the process was killed before it could rename.
    if (exists(part) && verify_file(part, known).ok) {
      flush_and_rename(part, packed);
      return {packed, ""};
    }
    std::string failures;
    for (const std::string& mirror : options_.mirrors) {
      const std::string url =
          mirror + (mirror.empty() || mirror.back() != '/' ? "/" : "") + std::string(known.name) + ".gz";
      bool anew = false;
      std::string reason = try_url(url, part, known, anew);
      if (anew) {
        ::unlink(part.c_str());
        reason = try_url(url, part, known, anew);
      }
      if (reason.empty()) {
        flush_and_rename(part, packed);
        return {packed, url};
      }
      if (stopped_) throw IoError(packed, "fetch stopped; what was received is kept in " + part);
      failures += "\n  " + url + ": " + reason;
      tell("  " + url + ": " + reason);
    }
    throw IoError(packed,
                  "could not be downloaded; tried:" + (failures.empty() ? " no mirror" : failures) +
                      "\nWithout network install Debian's package dataset-fashion-mnist, or copy the four files "
                      "from another machine and give their folder (--data-dir or $HEDDLE_DATA).");
  }

 private:
  void tell(const std::string& line) const {
    if (options_.on_message) options_.on_message(line);
  }

  // Empty if the part file is now complete and right. A part that can still be continued is kept; one that does not fit
  // this server (another packing, no ranges) sets `anew`.
  std::string try_url(const std::string& url, const std::string& part, const KnownFile& known, bool& anew) {
    const bool continued = exists(part);
    tell((continued ? "continuing " : "fetching ") + url);
    DownloadOptions options;
    options.program = options_.program;
    options.connect_timeout = options_.connect_timeout;
    options.max_nbytes = known.nbytes + known.nbytes / 100 + 4096;  // packed data that is larger is something else
    if (options_.on_progress) {
      options.on_progress = [&](std::uint64_t nbytes) { return options_.on_progress(std::string(known.name), nbytes); };
    }
    const DownloadResult result = download(url, part, options);
    if (result.stopped) {
      stopped_ = true;
      return result.reason;
    }
    anew = continued && result.cannot_continue;
    if (!result.ok) return result.reason;
    if (!exists(part)) return "nothing was received";
    const VerifiedFile got = verify_file(part, known);
    if (got.ok) return {};
    ::unlink(part.c_str());  // complete, but wrong
    anew = continued;
    return got.problem;
  }

  const FetchOptions& options_;
  std::string folder_;
  bool stopped_ = false;
};

}  // namespace

std::vector<std::string> fashion_mnist_mirrors() {
  return {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
          "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"};
}

std::vector<FetchedFile> fetch_fashion_mnist(const FetchOptions& options) {
  const std::string folder = options.folder.empty() ? fashion_mnist_cache_folder() : options.folder;
  std::vector<FetchedFile> fetched;
  // A complete folder may be read-only.
  const std::vector<VerifiedFile> present = verify_fashion_mnist(folder, options.files);
  if (std::all_of(present.begin(), present.end(), [](const VerifiedFile& file) { return file.ok; })) {
    for (const VerifiedFile& file : present) fetched.push_back({file.path, ""});
    return fetched;
  }
  create_folders(folder);
  const FolderLock lock(folder, options);
  Fetcher fetcher(options, folder);
  for (const KnownFile& known : options.files) fetched.push_back(fetcher.fetch(known));
  return fetched;
}

std::vector<VerifiedFile> verify_fashion_mnist(const std::string& folder, const std::vector<KnownFile>& files) {
  std::vector<VerifiedFile> verified;
  for (const KnownFile& known : files) {
    const std::string plain = folder + "/" + std::string(known.name);
    verified.push_back(verify_file(!exists(plain) && exists(plain + ".gz") ? plain + ".gz" : plain, known));
  }
  return verified;
}

}  // namespace heddle::datasets
