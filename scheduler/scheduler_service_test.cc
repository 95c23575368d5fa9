// The scheduler over real gRPC on loopback, with a fake server behind it.

#include "scheduler/scheduler_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_leader.h"
#include "common/grpc_server.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "common/testing/status_matchers.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "scheduler/memory/factory.h"
#include "scheduler/scheduler_process.h"
#include "scheduler/sqlite/factory.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Takes every job and counts.
class FakeControl final : public v1::ServerControl::CallbackService {
 public:
  grpc::ServerUnaryReactor* ConfigureJob(grpc::CallbackServerContext* context,
                                         const v1::ConfigureJobRequest*,
                                         v1::ConfigureJobResponse*) override {
    ++configured;
    return Ok(context);
  }
  grpc::ServerUnaryReactor* DropJob(grpc::CallbackServerContext* context,
                                    const v1::DropJobRequest*,
                                    v1::DropJobResponse*) override {
    ++dropped;
    return Ok(context);
  }

  // All four layers at once.
  grpc::ServerUnaryReactor* WriteCheckpoint(
      grpc::CallbackServerContext* context, const v1::WriteCheckpointRequest*,
      v1::WriteCheckpointResponse* response) override {
    for (int layer = 0; layer < 4; ++layer) {
      response->add_files()->set_layer(layer);
    }
    return Ok(context);
  }
  grpc::ServerUnaryReactor* CommitCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::CommitCheckpointRequest* request,
      v1::CommitCheckpointResponse*) override {
    committed += request->files_size();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    MutexLock lock(&mu_);
    commit_ = *request;
    reactor->Finish(commit_answer_);
    return reactor;
  }

  v1::CommitCheckpointRequest commit() {
    MutexLock lock(&mu_);
    return commit_;
  }
  void AnswerCommits(const grpc::Status& answer) {
    MutexLock lock(&mu_);
    commit_answer_ = answer;
  }

  std::atomic<int> configured{0};
  std::atomic<int> dropped{0};
  std::atomic<int> committed{0};

 private:
  static grpc::ServerUnaryReactor* Ok(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  Mutex mu_;
  v1::CommitCheckpointRequest commit_ ABSL_GUARDED_BY(mu_);
  grpc::Status commit_answer_ ABSL_GUARDED_BY(mu_);
};

// A store in memory that can be made to refuse writes.
class RefusingStore final : public StateStore {
 public:
  explicit RefusingStore(std::atomic<bool>* refuse) : refuse_(refuse) {}

  std::string Describe() const override { return inner_->Describe(); }
  absl::StatusOr<StateMap> Load() override { return inner_->Load(); }
  absl::Status Write(const WriteBatch& batch) override {
    if (*refuse_) return absl::UnavailableError("disk full");
    return inner_->Write(batch);
  }

 private:
  std::atomic<bool>* const refuse_;
  const std::unique_ptr<StateStore> inner_ = memory::CreateStateStore();
};

class SchedulerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(control_endpoint_,
                                   Endpoint::Start({}, {&control_}));
    Start(memory::CreateStateStore());
  }

  void Start(std::unique_ptr<StateStore> store) {
    SchedulerOptions options;
    options.listen = "127.0.0.1:0";
    options.heartbeat = absl::Milliseconds(200);
    options.lease = absl::Seconds(2);
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        scheduler_, SchedulerProcess::Start(options, std::move(store)));
    stub_ = v1::Scheduler::NewStub(CreateChannel(scheduler_->address()));
  }

  // One call with a deadline.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(10));
    context.set_wait_for_ready(true);
    return FromGrpcStatus((stub_.get()->*method)(&context, request, response),
                          "scheduler");
  }

  absl::Status Register(const std::string& name) {
    v1::RegisterServerRequest request;
    request.set_name(name);
    request.set_address(control_endpoint_->address());
    request.set_incarnation(7);
    request.set_memory_bytes(1 << 30);
    v1::RegisterServerResponse response;
    return Call(&v1::Scheduler::Stub::RegisterServer, request, &response);
  }

  // Polls until ready.
  absl::StatusOr<v1::JoinJobResponse> Join(const v1::JoinJobRequest& request) {
    const absl::Time end = absl::Now() + kPatience;
    v1::JoinJobResponse response;
    while (absl::Now() < end) {
      const absl::Status status =
          Call(&v1::Scheduler::Stub::JoinJob, request, &response);
      if (!status.ok()) return status;
      if (response.state() == v1::JOIN_STATE_READY) return response;
    }
    return absl::DeadlineExceededError(response.DebugString());
  }

  // Asks until it is no longer being written.
  absl::StatusOr<v1::CheckpointJobResponse> Checkpoint(const std::string& id) {
    v1::CheckpointJobRequest request;
    request.set_job("j");
    request.set_id(id);
    request.set_step(5);  // Nobody steps here: no pace is known.
    v1::CheckpointJobResponse response;
    const absl::Time end = absl::Now() + kPatience;
    do {
      const absl::Status status =
          Call(&v1::Scheduler::Stub::CheckpointJob, request, &response);
      if (!status.ok()) return status;
    } while (response.state() == v1::CHECKPOINT_STATE_WRITING &&
             absl::Now() < end);
    return response;
  }

  FakeControl control_;
  std::unique_ptr<Endpoint> control_endpoint_;
  std::unique_ptr<SchedulerProcess> scheduler_;
  std::unique_ptr<v1::Scheduler::Stub> stub_;
};

TEST_F(SchedulerServiceTest, AJobJoinsMeetsAndFinishes) {
  ASSERT_THAT(Register("s1"), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, Join(Claim("j", 0, 1)));
  EXPECT_EQ(control_.configured, 1);
  EXPECT_EQ(ready.assignment().servers(0).address(),
            control_endpoint_->address());

  v1::PutRendezvousRequest put;
  put.set_job("j");
  put.set_world_version(1);
  put.set_key("k");
  put.set_value("v");
  v1::PutRendezvousResponse put_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::PutRendezvous, put, &put_response),
              IsOk());
  v1::GetRendezvousRequest get;
  get.set_job("j");
  get.set_world_version(1);
  get.add_keys("k");
  v1::GetRendezvousResponse entries;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::GetRendezvous, get, &entries), IsOk());
  EXPECT_EQ(entries.entries(0).value(), "v");

  v1::RankHeartbeatRequest beat;
  beat.set_job("j");
  beat.set_world_version(1);
  beat.set_incarnation(100);
  beat.set_step(3);
  v1::RankHeartbeatResponse beat_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::RankHeartbeat, beat, &beat_response),
              IsOk());
  EXPECT_EQ(beat_response.assignment().epoch(), 1u);

  v1::ServerHeartbeatRequest server_beat;
  server_beat.set_name("s1");
  server_beat.set_incarnation(7);
  v1::ServerHeartbeatResponse server_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::ServerHeartbeat, server_beat,
                   &server_response),
              IsOk());

  v1::GetStatusResponse status;
  EXPECT_THAT(
      Call(&v1::Scheduler::Stub::GetStatus, v1::GetStatusRequest(), &status),
      IsOk());
  EXPECT_EQ(status.jobs(0).step(), 3);
  EXPECT_EQ(status.store(), "memory");

  v1::FinishJobRequest finish;
  finish.set_job("j");
  finish.set_world_version(1);
  v1::FinishJobResponse finish_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::FinishJob, finish, &finish_response),
              IsOk());
  const absl::Time end = absl::Now() + kPatience;
  while (control_.dropped == 0 && absl::Now() < end) {
    EXPECT_THAT(
        Call(&v1::Scheduler::Stub::GetStatus, v1::GetStatusRequest(), &status),
        IsOk());
  }
  EXPECT_EQ(control_.dropped, 1);
}

TEST_F(SchedulerServiceTest, ErrorsKeepCodeAndMessage) {
  v1::FinishJobResponse response;
  EXPECT_THAT(
      Call(&v1::Scheduler::Stub::FinishJob, v1::FinishJobRequest(), &response),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("world_version is 0")));
  v1::ServerHeartbeatResponse beat;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::ServerHeartbeat,
                   v1::ServerHeartbeatRequest(), &beat),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("register")));
}

TEST_F(SchedulerServiceTest, PeoplesCallsKeepCodeAndMessage) {
  v1::DrainServerRequest drain;
  drain.set_server("s1");
  v1::DrainServerResponse drain_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::DrainServer, drain, &drain_response),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'s1'")));
  ASSERT_THAT(Register("s1"), IsOk());
  EXPECT_THAT(
      Call(&v1::Scheduler::Stub::DrainServer, drain, &drain_response),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no other")));
  v1::PinLayersRequest pin;
  pin.set_job("j");
  v1::PinLayersResponse pin_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::PinLayers, pin, &pin_response),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'j'")));
  v1::CheckpointJobRequest checkpoint;
  checkpoint.set_job("j");
  v1::CheckpointJobResponse checkpoint_response;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::CheckpointJob, checkpoint,
                   &checkpoint_response),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("id ''")));
  v1::RestoreJobRequest restore;
  restore.set_job("j");
  v1::RestoreJobResponse restore_response;
  EXPECT_THAT(
      Call(&v1::Scheduler::Stub::RestoreJob, restore, &restore_response),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("'j'")));
}

TEST_F(SchedulerServiceTest, ACheckpointIsWrittenAndCommitted) {
  ASSERT_THAT(Register("s1"), IsOk());
  ASSERT_THAT(Join(Claim("j", 0, 1)), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto response, Checkpoint("c1"));
  EXPECT_EQ(response.state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_EQ(response.layers_written(), 4);
  EXPECT_EQ(control_.committed, 4);
  const v1::CommitCheckpointRequest commit = control_.commit();
  EXPECT_EQ(commit.term(), 1u);
  EXPECT_EQ(commit.job(), "j");
  EXPECT_EQ(commit.world_version(), 1);
  EXPECT_EQ(commit.id(), "c1");
  EXPECT_EQ(commit.step(), 5);
  EXPECT_EQ(commit.files(3).layer(), 3);
}

TEST_F(SchedulerServiceTest, ARefusedCommitIsToldWithItsReason) {
  control_.AnswerCommits(
      {grpc::StatusCode::FAILED_PRECONDITION, "layer 2 is missing"});
  ASSERT_THAT(Register("s1"), IsOk());
  ASSERT_THAT(Join(Claim("j", 0, 1)), IsOk());
  EXPECT_THAT(Checkpoint("c1"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("server 's1' at"),
                             HasSubstr("layer 2 is missing"))));
}

TEST_F(SchedulerServiceTest, AFinishIsAnsweredWhenItIsStored) {
  std::atomic<bool> refuse{false};
  Start(std::make_unique<RefusingStore>(&refuse));
  ASSERT_THAT(Register("s1"), IsOk());
  ASSERT_THAT(Join(Claim("j", 0, 1)), IsOk());
  v1::FinishJobRequest finish;
  finish.set_job("j");
  finish.set_world_version(1);
  v1::FinishJobResponse response;
  refuse = true;
  EXPECT_THAT(Call(&v1::Scheduler::Stub::FinishJob, finish, &response),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("disk full")));
  EXPECT_THAT(Call(&v1::Scheduler::Stub::FinishJob, finish, &response),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_EQ(control_.dropped, 0);
  // It is the leader's own word: nobody else is asked.
  int attempts = 0;
  LeaderChannels channels(
      absl::StrCat(scheduler_->address(), ",", control_endpoint_->address()));
  const LeaderChannels::Outcome outcome =
      channels.Call([&](const auto& channel, grpc::ClientContext* context) {
        ++attempts;
        v1::Scheduler::Stub stub(channel);
        return stub.FinishJob(context, finish, &response);
      });
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(outcome.address, scheduler_->address());
  EXPECT_EQ(attempts, 1);
  refuse = false;
  const absl::Time end = absl::Now() + kPatience;
  while (!Call(&v1::Scheduler::Stub::FinishJob, finish, &response).ok() &&
         absl::Now() < end) {
  }
  EXPECT_THAT(Call(&v1::Scheduler::Stub::FinishJob, finish, &response), IsOk());
  scheduler_->Kill();
}

TEST_F(SchedulerServiceTest, ASilentServersLayersLoseTheirOwner) {
  ASSERT_THAT(Register("s1"), IsOk());
  ASSERT_THAT(Join(Claim("j", 0, 1)), IsOk());
  // No heartbeat of it follows, only its rank's: 2.2 s later its layers have no
  // owner.
  v1::RankHeartbeatRequest beat;
  beat.set_job("j");
  beat.set_world_version(1);
  beat.set_incarnation(100);
  v1::RankHeartbeatResponse beaten;
  v1::GetStatusResponse status;
  const absl::Time end = absl::Now() + kPatience;
  do {
    ASSERT_THAT(Call(&v1::Scheduler::Stub::RankHeartbeat, beat, &beaten),
                IsOk());
    ASSERT_THAT(
        Call(&v1::Scheduler::Stub::GetStatus, v1::GetStatusRequest(), &status),
        IsOk());
  } while (status.jobs(0).assignment().epoch() < 2 && absl::Now() < end);
  EXPECT_EQ(status.jobs(0).assignment().owners(0).server(), "");
  EXPECT_EQ(status.servers(0).state(), v1::MEMBER_STATE_DEAD);
}

TEST_F(SchedulerServiceTest, AnUnreachableServerKeepsTheJobPending) {
  ASSERT_THAT(Register("s1"), IsOk());
  control_endpoint_->Shutdown(absl::ZeroDuration());
  v1::JoinJobResponse response;
  const absl::Time end = absl::Now() + kPatience;
  do {
    ASSERT_THAT(
        Call(&v1::Scheduler::Stub::JoinJob, Claim("j", 0, 1), &response),
        IsOk());
  } while (absl::Now() < end &&
           (response.waiting_for_size() == 0 ||
            response.waiting_for(0).find("at 127.0.0.1") == std::string::npos));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre(HasSubstr("server 's1' has not confirmed epoch 1")));
}

TEST_F(SchedulerServiceTest, SqliteStateOutlivesTheProcess) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/scheduler-", getpid(), ".db");
  std::filesystem::remove(path);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto store, sqlite::CreateStateStore(path));
  Start(std::move(store));
  ASSERT_THAT(Register("s1"), IsOk());
  ASSERT_THAT(Join(Claim("j", 0, 1)), IsOk());
  scheduler_->Kill();
  scheduler_.reset();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(store, sqlite::CreateStateStore(path));
  Start(std::move(store));
  v1::GetStatusResponse status;
  ASSERT_THAT(
      Call(&v1::Scheduler::Stub::GetStatus, v1::GetStatusRequest(), &status),
      IsOk());
  EXPECT_EQ(status.term(), 2u);
  EXPECT_EQ(status.store(), "sqlite:" + path);
  EXPECT_EQ(status.jobs(0).assignment().epoch(), 1u);
  std::filesystem::remove(path);
}

TEST_F(SchedulerServiceTest, WritesItsAddressForScripts) {
  SchedulerOptions options;
  options.listen = "127.0.0.1:0";
  options.address_file =
      absl::StrCat(::testing::TempDir(), "/scheduler-", getpid(), ".address");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      auto scheduler,
      SchedulerProcess::Start(options, memory::CreateStateStore()));
  std::string address;
  std::ifstream(options.address_file) >> address;
  EXPECT_EQ(address, scheduler->address());
  std::filesystem::remove(options.address_file);
  options.listen = scheduler->address();
  EXPECT_THAT(SchedulerProcess::Start(options, memory::CreateStateStore()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(scheduler->address())));
  options.listen = "127.0.0.1:0";
  options.address_file = "/no/such/folder/address";
  EXPECT_THAT(SchedulerProcess::Start(options, memory::CreateStateStore()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/no/such/folder/address")));
}

TEST_F(SchedulerServiceTest, ShutdownIsQuickAndHappensOnce) {
  const absl::Time start = absl::Now();
  scheduler_->Shutdown(absl::Seconds(2));
  scheduler_->Shutdown(absl::Seconds(2));
  scheduler_->Kill();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

}  // namespace
}  // namespace kronserve::scheduler
