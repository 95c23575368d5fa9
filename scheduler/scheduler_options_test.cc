#include "scheduler/scheduler_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SchedulerOptionsTest : public ::testing::Test {
 protected:
  SchedulerOptionsTest() { AddSchedulerOptions(&set_, &options_); }

  SchedulerOptions options_;
  OptionSet set_{"kronserve-scheduler", "test"};
};

TEST_F(SchedulerOptionsTest, TheDefaultsAreValid) {
  EXPECT_THAT(set_.Parse({}), IsOk());
  EXPECT_EQ(options_.store, "sqlite:kronserve-scheduler.db");
  EXPECT_EQ(options_.lease, absl::Seconds(5));
}

TEST_F(SchedulerOptionsTest, TakesEveryWord) {
  EXPECT_THAT(
      set_.Parse({"--listen=127.0.0.1:0", "--store=memory", "--etcd-prefix=/a/",
                  "--advertise=sched-0:7710", "--heartbeat=200ms", "--lease=1s",
                  "--job-ttl=1h", "--insecure-bind", "--address-file=/tmp/a"}),
      IsOk());
  EXPECT_EQ(options_.heartbeat, absl::Milliseconds(200));
  EXPECT_EQ(options_.job_ttl, absl::Hours(1));
  EXPECT_TRUE(options_.insecure_bind);
}

TEST_F(SchedulerOptionsTest, NamesEveryBrokenRelation) {
  EXPECT_THAT(set_.Parse({"--heartbeat=5ms", "--lease=12ms", "--job-ttl=1ms",
                          "--etcd-prefix="}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("lease 12ms is shorter than 3"),
                             HasSubstr("heartbeat 5ms is below 10ms"),
                             HasSubstr("job-ttl 1ms is shorter than lease"),
                             HasSubstr("etcd-prefix is empty"))));
}

TEST_F(SchedulerOptionsTest, RefusesAnUnknownStore) {
  for (const char* store :
       {"--store=redis", "--store=sqlite", "--store=etcd:", "--store="}) {
    EXPECT_THAT(set_.Parse({store}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("memory, sqlite:PATH and etcd:")));
  }
}

TEST(ParseStoreTest, TakesThePathOrTheEndpoints) {
  EXPECT_EQ(ParseStore("memory")->kind, StoreChoice::Kind::kMemory);
  EXPECT_EQ(ParseStore("sqlite:/a:b.db")->kind, StoreChoice::Kind::kSqlite);
  EXPECT_EQ(ParseStore("sqlite:/a:b.db")->where, "/a:b.db");
  EXPECT_EQ(ParseStore("etcd:e0:2379,e1:2379")->kind, StoreChoice::Kind::kEtcd);
  EXPECT_EQ(ParseStore("etcd:e0:2379,e1:2379")->where, "e0:2379,e1:2379");
}

}  // namespace
}  // namespace kronserve::scheduler
