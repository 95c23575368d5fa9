// The StateStore of the scheduler that leads.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_ETCD_STATE_STORE_H_
#define KRONSERVE_SCHEDULER_ETCD_STATE_STORE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/etcd/etcd_client.h"
#include "scheduler/etcd/factory.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler::etcd {

// Every batch is one transaction, done only while the leader key is still the
// one that this store was made with: a deposed leader writes nothing, however
// late it wakes up. It is also done only if no other batch came after the last
// one that this store knows of, so that a batch which seemed lost cannot undo
// its successor.
class EtcdStateStore final : public StateStore {
 public:
  //   leadership  create-revision of the leader key.
  EtcdStateStore(const EtcdOptions& options, int64_t leadership);

  std::string Describe() const override;
  uint64_t leadership() const override;
  absl::StatusOr<StateMap> Load() override;
  absl::Status Write(const WriteBatch& batch) override;

 private:
  absl::StatusOr<int64_t> NewestWrite();
  // Whether it was done; not, when another batch came in between.
  absl::StatusOr<bool> TryWrite(const WriteBatch& batch);

  const EtcdOptions options_;
  const int64_t leadership_;
  EtcdClient client_;
  // Revision of the newest batch; none: not known.
  std::optional<int64_t> newest_write_;
};

std::string LeaderKey(const EtcdOptions& options);

}  // namespace kronserve::scheduler::etcd

#endif  // KRONSERVE_SCHEDULER_ETCD_STATE_STORE_H_
