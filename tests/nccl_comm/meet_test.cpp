// How ranks find each other through a store: memory, files, TCP; with what an earlier run left there; and what they are
// told when not all come.
#include "nccl_comm/meet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "nccl_comm/machine_identity.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using heddle::test::contains;
using heddle::test::free_port;
using heddle::test::message_of;
using heddle::test::TempFolder;
using testing::RankResults;

namespace {

using MakeStore = std::function<std::unique_ptr<comm::Store>(int rank)>;

constexpr std::chrono::milliseconds kPatient{60'000};

MakeStore memory_stores() {
  return [memory = comm::make_store_memory()](int) { return comm::make_memory_store(memory); };
}
MakeStore file_stores(const std::string& folder) {
  return [folder](int) { return comm::make_file_store(folder); };
}
MakeStore tcp_stores() {
  return [port = free_port()](int rank) {
    return comm::make_tcp_store({.host = "127.0.0.1", .port = port, .serve = rank == 0, .timeout = kPatient});
  };
}

// Each rank's group, or the error that it met. Stores live until all ranks are done.
std::vector<std::string> meet_all(const MakeStore& make_store, const std::vector<int>& world_size_of_rank,
                                  std::chrono::milliseconds timeout = kPatient) {
  const auto count = static_cast<int>(world_size_of_rank.size());
  RankResults results(count);
  std::vector<std::unique_ptr<comm::Store>> stores(world_size_of_rank.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<std::size_t>(rank);
      try {
        stores[i] = make_store(rank);
        results.add(rank, comm::meet(*stores[i], {rank, world_size_of_rank[i], timeout}));
      } catch (const std::exception& error) {
        results.add(rank, std::string("error: ") + error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results.texts();
}

bool all_in_one_group(const std::vector<std::string>& groups) {
  for (const std::string& group : groups) {
    if (group != groups[0]) return false;
  }
  return !groups[0].empty() && groups[0].find("error") == std::string::npos;
}

FileHandle connect_to(const char* host, std::uint16_t port) {
  FileHandle fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return FileHandle();
  }
  return fd;
}

}  // namespace

TEST_CASE("ranks meet in memory, in a folder and by TCP") {
  const TempFolder folder;
  for (const int ranks : {1, 2, 5}) {
    const std::vector<int> sizes(static_cast<std::size_t>(ranks), ranks);
    CHECK(all_in_one_group(meet_all(memory_stores(), sizes)));
    CHECK(all_in_one_group(meet_all(file_stores(folder / std::to_string(ranks)), sizes)));
    CHECK(all_in_one_group(meet_all(tcp_stores(), sizes)));
  }
}

TEST_CASE("what an earlier run has left in a store is not taken for the ranks of this one") {
  const TempFolder folder;
  const MakeStore stores = file_stores(folder.path());
  const std::vector<std::string> before = meet_all(stores, {3, 3, 3});
  for (int run = 0; run < 5; ++run) {
    const std::vector<std::string> now = meet_all(stores, {3, 3, 3});
    CHECK(all_in_one_group(now));
    CHECK(now[0] != before[0]);
  }
  // Nor are ranks that did come once, and are not there now, counted.
  const std::vector<std::string> alone = meet_all(stores, {3}, std::chrono::milliseconds(100));
  CHECK(contains(alone[0], "ranks 1, 2 of 3 did not come to the folder " + folder.path() + " within 0.1 s"));
}

TEST_CASE("ranks that are missing are named when the time is over") {
  CHECK(contains(meet_all(memory_stores(), {2}, std::chrono::milliseconds(50))[0],
                 "rank 1 of 2 did not come to memory of this process within 0.05 s"));
  const auto memory = comm::make_store_memory();
  const auto store = comm::make_memory_store(memory);
  CHECK(contains(message_of<CommError>([&] {
                   comm::meet(*store, {1, 2, std::chrono::milliseconds(50)});
                 }),
                 "rank 1 of 2 has waited 0.05 s in memory of this process for rank 0, which did not come"));
  // Not by rank 0 alone: the others know who has not answered its invitation.
  const std::vector<std::string> two = meet_all(memory_stores(), {4, 4}, std::chrono::milliseconds(300));
  CHECK(contains(two[0], "ranks 2, 3 of 4 did not come"));
  CHECK(contains(two[1], "rank 1 of 4 has waited 0.3 s in memory of this process for ranks 2, 3, which did not come"));
  CHECK_THROWS_AS(comm::meet(*store, {2, 2, kPatient}), InvalidArgument);
  CHECK_THROWS_AS(comm::meet(*store, {0, 2, std::chrono::milliseconds(0)}), InvalidArgument);
}

TEST_CASE("a wait for ranks that do not come can be given up") {
  const auto soon = [begin = std::chrono::steady_clock::now()] {
    return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(30);
  };
  const auto store = comm::make_memory_store(comm::make_store_memory());
  for (const int rank : {0, 1}) {
    CHECK(contains(message_of<CommError>([&] { comm::meet(*store, {rank, 2, kPatient, soon}); }), "was cancelled"));
  }
  const comm::TcpStoreOptions client{.host = "127.0.0.1", .port = free_port(), .timeout = kPatient, .cancelled = soon};
  CHECK(contains(message_of<CommError>([&] { comm::make_tcp_store(client); }), "was cancelled"));
}

TEST_CASE("a machine is told from another one of the same name") {
  const std::string boot = read_file("/proc/sys/kernel/random/boot_id", 100);
  REQUIRE(boot.size() > 30);
  CHECK(contains(comm::machine_identity(), boot.substr(0, boot.find('\n'))));
}

TEST_CASE("ranks that expect another number of ranks are told both") {
  for (const std::string& text : meet_all(memory_stores(), {2, 3})) {
    CHECK(contains(text, "rank 0 expects 2 ranks, rank 1 expects 3"));
  }
}

TEST_CASE("a TCP store that nobody serves, or that is taken, is an error with its address") {
  const std::uint16_t port = free_port();
  const comm::TcpStoreOptions client{.host = "127.0.0.1", .port = port, .timeout = std::chrono::milliseconds(100)};
  CHECK(
      contains(message_of<CommError>([&] { comm::make_tcp_store(client); }), "127.0.0.1 port " + std::to_string(port)));
  const comm::TcpStoreOptions server{.host = "127.0.0.1", .port = port, .serve = true, .timeout = kPatient};
  const auto first = comm::make_tcp_store(server);
  CHECK(contains(message_of<CommError>([&] { comm::make_tcp_store(server); }), std::to_string(port)));
}

TEST_CASE("a TCP store lives through a client that speaks something else") {
  const std::uint16_t port = free_port();
  const auto server = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .serve = true, .timeout = kPatient});
  for (const std::string& text : {std::string("GET / HTTP/1.0\r\n\r\n"), std::string(9, '\xff'), std::string("s")}) {
    const FileHandle fd = connect_to("127.0.0.1", port);
    REQUIRE(fd.get() >= 0);
    CHECK(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  const auto client = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .timeout = kPatient});
  client->set("key", std::string(100'000, 'x'));
  CHECK(server->get("key") == std::string(100'000, 'x'));
  CHECK(client->get("key") == std::string(100'000, 'x'));
  CHECK(!client->get("other").has_value());
}

TEST_CASE("a TCP store that is named by a loopback address answers at no other") {
  const std::uint16_t port = free_port();
  const auto server = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .serve = true, .timeout = kPatient});
  CHECK(connect_to("127.0.0.1", port).get() >= 0);
  CHECK(connect_to("127.0.0.2", port).get() < 0);
}

TEST_CASE("a TCP store keeps answering while a client does not take its answers, and gives them later") {
  const std::uint16_t port = free_port();
  const auto server = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .serve = true, .timeout = kPatient});
  constexpr std::size_t kValue = 1'000'000, kAnswer = kValue + 4, kRequests = 100;
  server->set("k", std::string(kValue, 'x'));
  const FileHandle fd = connect_to("127.0.0.1", port);
  REQUIRE(fd.get() >= 0);
  std::string requests;
  for (std::size_t i = 0; i < kRequests; ++i) requests += std::string("g\0\0\0\1\0\0\0\0k", 10);
  REQUIRE(::send(fd.get(), requests.data(), requests.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(requests.size()));
  const auto client = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .timeout = kPatient});
  client->set("other", "value");
  CHECK(client->get("other") == "value");
  std::size_t received = 0, values = 0;
  std::string block(65'536, '\0');
  while (received < kRequests * kAnswer) {
    const ssize_t n = ::recv(fd.get(), block.data(), block.size(), 0);
    REQUIRE(n > 0);
    values += static_cast<std::size_t>(std::count(block.begin(), block.begin() + n, 'x'));
    received += static_cast<std::size_t>(n);
  }
  CHECK(received == kRequests * kAnswer);
  CHECK(values == kRequests * kValue);
}

TEST_CASE("a TCP store takes no more than it has room for") {
  const std::uint16_t port = free_port();
  const auto server = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .serve = true, .timeout = kPatient});
  const auto client = comm::make_tcp_store({.host = "127.0.0.1", .port = port, .timeout = kPatient});
  const std::string value(1u << 20, 'x');
  const auto fill = [&] {
    for (int i = 0; i < 300; ++i) client->set(std::to_string(i), value);
  };
  CHECK(contains(message_of<CommError>(fill), "is lost"));
  CHECK(server->get("0") == value);
  CHECK_THROWS_AS(server->set("more", value), CommError);
}
