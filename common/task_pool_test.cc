#include "common/task_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <future>
#include <memory>

namespace kronserve {
namespace {

using ::testing::ElementsAre;

constexpr auto kDeadline = std::chrono::seconds(30);

bool Ready(const std::future<void>& future) {
  return future.wait_for(kDeadline) == std::future_status::ready;
}

// A one-thread pool whose thread is held until Open(), so that a test decides
// what is queued together.
class HeldPool {
 public:
  HeldPool() {
    pool_->Submit([this] {
      running_.set_value();
      Ready(opened_);
    });
    EXPECT_TRUE(Ready(running_.get_future()));
  }
  TaskPool& operator*() { return *pool_; }
  void Open() { open_.set_value(); }
  // Runs what is queued.
  void Destroy() { pool_.reset(); }

 private:
  std::promise<void> running_;
  std::promise<void> open_;
  std::future<void> opened_ = open_.get_future();
  std::unique_ptr<TaskPool> pool_ = std::make_unique<TaskPool>("held", 1);
};

TEST(TaskPool, RunsLowestPriorityFirstAndEqualsInOrder) {
  HeldPool pool;
  std::vector<int> order;
  (*pool).Submit([&] { order.push_back(1); }, /*priority=*/5);
  (*pool).Submit([&] { order.push_back(2); }, /*priority=*/-1);
  (*pool).Submit([&] { order.push_back(3); }, /*priority=*/5);
  (*pool).Submit([&] { order.push_back(4); });
  pool.Open();
  pool.Destroy();
  EXPECT_THAT(order, ElementsAre(2, 4, 1, 3));
}

TEST(TaskPool, QueueDepthCountsWaitingTasksOnly) {
  HeldPool pool;
  EXPECT_EQ((*pool).queue_depth(), 0);
  (*pool).Submit([] {});
  (*pool).Submit([] {});
  EXPECT_EQ((*pool).queue_depth(), 2);
  pool.Open();
}

TEST(TaskPool, DestructorRunsWhatIsQueued) {
  HeldPool pool;
  int done = 0;
  for (int i = 0; i < 10; ++i) (*pool).Submit([&] { ++done; });
  pool.Open();
  pool.Destroy();
  EXPECT_EQ(done, 10);
}

TEST(TaskPool, ThreadsRunAtTheSameTime) {
  // Each task waits for the other: one thread alone would time out.
  std::promise<void> first, second;
  std::future<void> first_runs = first.get_future();
  std::future<void> second_runs = second.get_future();
  bool met[2] = {false, false};
  {
    TaskPool pool("pair", 2);
    pool.Submit([&] {
      first.set_value();
      met[0] = Ready(second_runs);
    });
    pool.Submit([&] {
      second.set_value();
      met[1] = Ready(first_runs);
    });
  }
  EXPECT_TRUE(met[0]);
  EXPECT_TRUE(met[1]);
}

TEST(TaskPool, TaskMaySubmit) {
  std::promise<void> inner;
  std::future<void> inner_runs = inner.get_future();
  TaskPool pool("nested", 1);
  pool.Submit([&] { pool.Submit([&] { inner.set_value(); }); });
  EXPECT_TRUE(Ready(inner_runs));
}

TEST(TaskPool, ThreadsCarryAShortenedName) {
  char name[16] = "";
  {
    TaskPool pool("a-name-of-more-than-15", 1);
    pool.Submit(
        [&] { pthread_getname_np(pthread_self(), name, sizeof(name)); });
  }
  EXPECT_STREQ(name, "a-name-of-more-");
}

TEST(TaskPool, HasAtLeastOneThread) {
  bool ran = false;
  {
    TaskPool pool("none", 0);
    pool.Submit([&] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace kronserve
