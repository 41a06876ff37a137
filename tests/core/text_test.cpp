#include "engine/core/text.h"

#include "tests/support/catch.h"

using namespace heddle;

TEST_CASE("the edit distance counts insertions, deletions, replacements and swapped neighbours") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("momentum", "momnetum") == 1);
  CHECK(edit_distance("lenet", "lenet") == 0);
  CHECK(edit_distance("ca", "abc") == 3);  // restricted: no edit inside a swapped pair
}

TEST_CASE("the nearest name is offered only when it is close") {
  const std::vector<std::string> known{"lenet", "lenet-d2l", "resnet18"};
  CHECK(nearest_name("LeNet", known) == "lenet");
  CHECK(nearest_name("lenet-d2", known) == "lenet-d2l");
  CHECK(nearest_name("resnet-18", known) == "resnet18");
  CHECK(nearest_name("transformer", known).empty());
  CHECK(unknown_name_message("model", "lenett", known) ==
        "unknown model 'lenett'; did you mean 'lenet'? Known: lenet, lenet-d2l, resnet18");
  CHECK(unknown_name_message("model", "vgg", known) == "unknown model 'vgg'. Known: lenet, lenet-d2l, resnet18");
}
