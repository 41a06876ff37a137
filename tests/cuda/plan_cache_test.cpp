// The file in which chosen plans are kept.
#include <map>
#include <string>

#include "engine/core/file.h"
#include "kernels/cuda/cudnn_plan_cache.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::cuda;
using test::TempFolder;

namespace {

const std::map<std::string, StoredPlan> kPlans = {{"00ff", {.engine = 67, .settings = {{0, 1}, {14, -3}}}},
                                                  {"0a", {.engine = 0, .settings = {}}}};

}  // namespace

TEST_CASE("stored plans are read back") {
  const std::string text = plans_to_text("cuDNN 9.1 GPU", kPlans);
  const auto read = plans_from_text("cuDNN 9.1 GPU", text);
  REQUIRE(read.has_value());
  CHECK(*read == kPlans);
}

TEST_CASE("plans of another version or device and damaged files count as none") {
  const std::string text = plans_to_text("cuDNN 9.1 GPU", kPlans);
  CHECK_FALSE(plans_from_text("cuDNN 9.2 GPU", text).has_value());
  CHECK_FALSE(plans_from_text("cuDNN 9.1 GPU", "").has_value());
  for (std::size_t nbytes = 0; nbytes + 1 < text.size(); ++nbytes) {
    INFO(nbytes);
    CHECK_FALSE(plans_from_text("cuDNN 9.1 GPU", text.substr(0, nbytes)).has_value());
  }
  std::string broken = text;
  broken.replace(broken.find("0=1"), 3, "0:1");
  CHECK_FALSE(plans_from_text("cuDNN 9.1 GPU", broken).has_value());
}

TEST_CASE("a plan is found by the next process, and by one that ran at the same time") {
  const TempFolder folder;
  const std::string path = folder / "cache";
  PlanCacheFile first(path, "cuDNN 9.1 GPU"), second(path, "cuDNN 9.1 GPU");
  first.store("aa", {.engine = 1, .settings = {{2, 3}}});
  second.store("bb", {.engine = 4, .settings = {}});
  const PlanCacheFile third(path, "cuDNN 9.1 GPU");
  CHECK(third.find("aa") == StoredPlan{.engine = 1, .settings = {{2, 3}}});
  CHECK(third.find("bb") == StoredPlan{.engine = 4, .settings = {}});
  CHECK_FALSE(third.find("cc").has_value());
  CHECK_FALSE(PlanCacheFile(path, "cuDNN 9.2 GPU").find("aa").has_value());
}

TEST_CASE("without a folder, or with one that cannot be made, plans last as long as the process") {
  for (const std::string& folder : {std::string(), std::string("/dev/null/cache")}) {
    PlanCacheFile cache(folder, "cuDNN 9.1 GPU");
    cache.store("aa", {.engine = 1, .settings = {}});
    CHECK(cache.find("aa").has_value());
    CHECK_FALSE(PlanCacheFile(folder, "cuDNN 9.1 GPU").find("aa").has_value());
  }
}
