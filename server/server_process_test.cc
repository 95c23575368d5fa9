#include "server/server_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "common/options.h"
#include "common/testing/status_matchers.h"
#include "server/testing/fake_scheduler_service.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Seen = testing::FakeSchedulerService::Seen;

ServerOptions MakeOptions() {
  ServerOptions options;
  options.name = "s0";
  options.cost_probe = "default";
  options.device = "reference";
  return options;
}

TEST(ServerProcess, ServesWithoutAScheduler) {
  ServerOptions options = MakeOptions();
  options.address_file = ::testing::TempDir() + "server_process_address";
  auto server = ServerProcess::Start(options);
  ASSERT_THAT(server, IsOk());
  EXPECT_THAT((*server)->address(), HasSubstr("127.0.0.1:"));
  EXPECT_NE((*server)->incarnation(), 0u);
  EXPECT_FALSE((*server)->is_registered());
  EXPECT_EQ((*server)->Status().name(), "s0");
  EXPECT_EQ((*server)->Status().memory_limit_bytes(), int64_t{2} << 30);
  std::string line;
  std::getline(std::ifstream(options.address_file), line);
  EXPECT_EQ(line, (*server)->address());
  (*server)->Shutdown(absl::Seconds(1));
  (*server)->Shutdown(absl::Seconds(1));
  (*server)->Kill();
  std::remove(options.address_file.c_str());
}

TEST(ServerProcess, RegistersWhereItListens) {
  testing::FakeSchedulerService scheduler;
  auto endpoint = Endpoint::Start({}, {&scheduler});
  ASSERT_THAT(endpoint, IsOk());
  ServerOptions options = MakeOptions();
  options.scheduler = (*endpoint)->address();
  auto server = ServerProcess::Start(options);
  ASSERT_THAT(server, IsOk());
  ASSERT_TRUE(scheduler.Await([&](const Seen& seen) {
    return !seen.heartbeats.empty() &&
           seen.registrations[0].address() == (*server)->address() &&
           seen.registrations[0].incarnation() == (*server)->incarnation() &&
           seen.registrations[0].memory_bytes() == int64_t{2} << 30 &&
           seen.registrations[0].cost().seconds() > 0;
  }));
  EXPECT_TRUE((*server)->is_registered());
  (*server)->Kill();
}

TEST(ServerProcess, TellsTheAddressThatItIsGivenForOthers) {
  testing::FakeSchedulerService scheduler;
  auto endpoint = Endpoint::Start({}, {&scheduler});
  ASSERT_THAT(endpoint, IsOk());
  ServerOptions options = MakeOptions();
  options.scheduler = (*endpoint)->address();
  options.advertise = "gpu7.example:7001";
  auto server = ServerProcess::Start(options);
  ASSERT_THAT(server, IsOk());
  EXPECT_TRUE(scheduler.Await([](const Seen& seen) {
    return !seen.registrations.empty() &&
           seen.registrations[0].address() == "gpu7.example:7001";
  }));
}

TEST(ServerProcess, DrainIsToldToTheSchedulerWhoLetsTheServerGo) {
  testing::FakeSchedulerService scheduler;
  auto endpoint = Endpoint::Start({}, {&scheduler});
  ASSERT_THAT(endpoint, IsOk());
  ServerOptions options = MakeOptions();
  options.scheduler = (*endpoint)->address();
  auto server = ServerProcess::Start(options);
  ASSERT_THAT(server, IsOk());
  ASSERT_TRUE(scheduler.Await([](const Seen& seen) {
    return !seen.heartbeats.empty() && !seen.heartbeats[0].draining() &&
           seen.heartbeats[0].state_recovery() == v1::STATE_RECOVERY_NONE &&
           seen.heartbeats[0].state_recovery_message() == "no --checkpoint-dir";
  }));
  (*server)->BeginDrain();
  ASSERT_TRUE(scheduler.Await(
      [](const Seen& seen) { return seen.heartbeats.back().draining(); }));
  scheduler.SetDrained();
  const absl::Time end = SteadyClock().Now() + absl::Seconds(10);
  while (!(*server)->IsDrained() && SteadyClock().Now() < end) {
    std::this_thread::yield();
  }
  EXPECT_TRUE((*server)->IsDrained());
  (*server)->Kill();
}

TEST(ServerProcess, FaultsAtStartAreErrors) {
  auto first = ServerProcess::Start(MakeOptions());
  ASSERT_THAT(first, IsOk());
  ServerOptions options = MakeOptions();
  options.listen = (*first)->address();
  EXPECT_THAT(ServerProcess::Start(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr((*first)->address())));
  options = MakeOptions();
  options.listen = "0.0.0.0:0";
  EXPECT_THAT(ServerProcess::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--insecure-bind")));
  options = MakeOptions();
  options.device = "cuda";
  EXPECT_EQ(ServerProcess::Start(options).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options = MakeOptions();
  options.device = "abacus";
  EXPECT_EQ(ServerProcess::Start(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = MakeOptions();
  options.address_file = "/nonexistent/directory/address";
  EXPECT_THAT(ServerProcess::Start(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/nonexistent/directory/address")));
}

TEST(ServerOptions, AllFaultsAreReportedAtOnce) {
  ServerOptions options;
  OptionSet set("kronserve-server", "test");
  AddServerOptions(&set, &options);
  EXPECT_THAT(
      set.Parse({"--refresh-threads=0", "--device=tpu", "--memory-limit=-1"}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("name"), HasSubstr("scheduler"),
                     HasSubstr("refresh-threads"), HasSubstr("device"),
                     HasSubstr("memory-limit"))));
}

TEST(ServerOptions, FlagsReachTheirFields) {
  ServerOptions options;
  OptionSet set("kronserve-server", "test");
  AddServerOptions(&set, &options);
  ASSERT_THAT(set.Parse({"--name=a", "--scheduler=h:1", "--listen=127.0.0.1:7",
                         "--insecure-bind", "--advertise=x:2", "--device=cpu",
                         "--refresh-threads=3", "--request-threads=4",
                         "--memory-limit=1GiB", "--staging-limit=1MiB",
                         "--cost-probe=default", "--address-file=f",
                         "--drain-grace=3s", "--checkpoint-dir=/d",
                         "--checkpoint-interval=7s", "--checkpoint-keep=5"}),
              IsOk());
  EXPECT_EQ(options.name, "a");
  EXPECT_EQ(options.scheduler, "h:1");
  EXPECT_EQ(options.listen, "127.0.0.1:7");
  EXPECT_TRUE(options.insecure_bind);
  EXPECT_EQ(options.advertise, "x:2");
  EXPECT_EQ(options.device, "cpu");
  EXPECT_EQ(options.refresh_threads, 3);
  EXPECT_EQ(options.request_threads, 4);
  EXPECT_EQ(options.memory_limit_bytes, int64_t{1} << 30);
  EXPECT_EQ(options.staging_limit_bytes, int64_t{1} << 20);
  EXPECT_EQ(options.cost_probe, "default");
  EXPECT_EQ(options.address_file, "f");
  EXPECT_EQ(options.drain_grace, absl::Seconds(3));
  EXPECT_EQ(options.checkpoint_dir, "/d");
  EXPECT_EQ(options.checkpoint_interval, absl::Seconds(7));
  EXPECT_EQ(options.checkpoint_keep, 5);
  EXPECT_THAT(set.Parse({"--name=" + std::string(300, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("256")));
}

}  // namespace
}  // namespace kronserve::server
