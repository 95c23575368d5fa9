#include "server/step_ledger.h"

#include "absl/strings/str_cat.h"

namespace kronserve::server {

StepLedger::StepLedger(int world_size) : world_size_(world_size) {}

StepLedger::Step& StepLedger::Open(int64_t step) {
  Step& entry = steps_[step];
  entry.committed.resize(world_size_);
  return entry;
}

const StepLedger::Step* StepLedger::Find(int64_t step) const {
  const auto it = steps_.find(step);
  return it == steps_.end() ? nullptr : &it->second;
}

void StepLedger::Commit(int64_t step, int rank) {
  Step& entry = Open(step);
  if (entry.committed[rank]) return;
  entry.committed[rank] = true;
  ++entry.num_committed;
}

void StepLedger::Void(int64_t step, int rank, const std::string& reason) {
  Step& entry = Open(step);
  if (entry.voided) return;
  entry.voided = true;
  entry.void_reason = absl::StrCat("rank ", rank, ": ", reason);
}

bool StepLedger::IsCommitted(int64_t step, int rank) const {
  const Step* entry = Find(step);
  return entry != nullptr && entry->committed[rank];
}

bool StepLedger::IsCommittedByAll(int64_t step) const {
  const Step* entry = Find(step);
  return entry != nullptr && entry->num_committed == world_size_;
}

const std::string* StepLedger::VoidReason(int64_t step) const {
  const Step* entry = Find(step);
  return entry != nullptr && entry->voided ? &entry->void_reason : nullptr;
}

void StepLedger::Prune(int64_t needed_from, int keep) {
  while (size() > keep && steps_.begin()->first < needed_from) {
    steps_.erase(steps_.begin());
  }
  while (size() > kMostSteps) steps_.erase(steps_.begin());
}

}  // namespace kronserve::server
