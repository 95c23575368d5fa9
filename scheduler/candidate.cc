#include "scheduler/candidate.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace kronserve::scheduler {

Candidate::Candidate(std::unique_ptr<Election> election,
                     RuntimeFactory create_runtime, ActiveRuntime* active,
                     const Clock* clock)
    : election_(std::move(election)),
      create_runtime_(std::move(create_runtime)),
      active_(active),
      clock_(*clock) {}

Candidate::~Candidate() { Stop(/*resign=*/false); }

void Candidate::Start(const std::string& address, absl::Duration interval) {
  thread_ = std::thread([this, address, interval] {
    pthread_setname_np(pthread_self(), "election");
    while (true) {
      Round(address);
      MutexLock lock(&mu_);
      if (!stopping_) changed_.WaitFor(&mu_, interval);
      if (stopping_) return;
    }
  });
}

void Candidate::Stop(bool resign) {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  StepDown("");
  if (resign) election_->Resign();
}

void Candidate::Round(const std::string& address) {
  const absl::StatusOr<Election::Result> result = election_->Campaign(address);
  if (!result.ok()) {
    Report(std::string(result.status().message()));
    if (clock_.Now() >= until_) StepDown("");
    return;
  }
  const bool leads = clock_.Now() < result->leads_until;
  if (!leads) {
    StepDown(result->leader);
  } else if (result->leadership != leadership_) {
    StepDown("");
  }
  if (leads) {
    Lead(address, *result);
  } else {
    Report("");
  }
}

void Candidate::Lead(const std::string& address,
                     const Election::Result& result) {
  if (runtime_ == nullptr) {
    auto runtime = create_runtime_(election_->OpenStore());
    if (!runtime.ok()) {
      Report(absl::StrCat("elected, but cannot lead: ",
                          runtime.status().message()));
      // Perhaps another one can.
      election_->Resign();
      return;
    }
    runtime_ = *std::move(runtime);
    leadership_ = result.leadership;
    Log(LogLevel::kInfo, "this scheduler leads",
        {{"store", election_->Describe()}, {"leadership", leadership_}});
  }
  until_ = result.leads_until;
  active_->Lead(runtime_, address, until_);
  Report("");
}

void Candidate::StepDown(const std::string& leader) {
  active_->Follow(leader);
  const bool leads = clock_.Now() < std::exchange(until_, absl::InfinitePast());
  if (runtime_ == nullptr) return;
  Log(LogLevel::kWarning, "this scheduler does not lead any more",
      {{"leader", leader}});
  // What is queued is fenced once another may lead.
  runtime_->Stop(/*finish_writes=*/leads);
  retired_ = std::move(runtime_);
  runtime_ = nullptr;
}

// Logs a change of state once, not every round.
void Candidate::Report(const std::string& fault) {
  if (fault == reported_) return;
  if (fault.empty()) {
    Log(LogLevel::kInfo, "the election goes on",
        {{"store", election_->Describe()}});
  } else {
    Log(LogLevel::kWarning, "no election", {{"fault", fault}});
  }
  reported_ = fault;
}

}  // namespace kronserve::scheduler
