// Where every contribution ends, and that averages hold exactly what was
// merged.
//
// Layer: tests. Source: PROTOCOL.md 2 and 3; METHOD.md D1 and D2.
// The check keeps books of its own: of what ranks sent, of what each server
// took, and of what its averages should be, in double.

#ifndef KRONSERVE_TESTS_SIMULATION_CONTRIBUTION_CHECK_H_
#define KRONSERVE_TESTS_SIMULATION_CONTRIBUTION_CHECK_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/step_core.h"
#include "server/effects.h"
#include "server/layer_state.h"
#include "tests/simulation/cluster_plan.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/layer_oracle.h"
#include "tests/simulation/verdict.h"

namespace kronserve::simulation {

class ServerNode;

class ContributionCheck {
 private:
  struct LayerBook;

 public:
  // What is known of a layer's state: it travels with the state.
  using Lineage = std::shared_ptr<const LayerBook>;

  ContributionCheck(const ClusterPlan& plan, Verdict* verdict)
      : plan_(plan), verdict_(*verdict) {}

  // A rank is about to send these. The tensors are kept, so that each is known
  // by its address for the whole run.
  void OnSent(int64_t world, int rank, const client::StepRequest& request);
  // The contributors of each layer in a world.
  void OnWorld(int64_t world, const std::vector<std::vector<int>>& ranks) {
    contributors_[world] = ranks;
  }

  // A rank's group has agreed on this step.
  void OnAgreed(int64_t world, int64_t step) {
    int64_t& newest = agreed_.try_emplace(world, step).first->second;
    newest = std::max(newest, step);
  }

  // A server took a configuration.
  void OnConfigured(const ServerNode& server, const v1::JobConfig& config);
  void OnStaged(const ServerNode& server, const v1::PushFactorsHeader& header,
                const v1::PushFactorsResponse& response, absl::Time now);
  void OnStepEnds(const ServerNode& server,
                  const v1::PreconditionHeader& header,
                  const absl::Status& status);
  void OnMergeBegins(const ServerNode& server, const server::MergeTask& task,
                     absl::Time now);
  void BeforeMergeEnds(const ServerNode& server, const server::MergeTask& task);
  void OnMergeEnds(const ServerNode& server, const server::MergeTask& task);
  // The layer's state is about to be sent or written.
  Lineage OnStateLeaves(const ServerNode& server, int layer,
                        const v1::LayerSnapshot& state);
  // A server took a state that was sent or written.
  void OnStateCame(const ServerNode& server, int layer, const Lineage& lineage,
                   bool from_server);
  // After every input of a server.
  void OnServer(const ServerNode& server);

  int64_t merged() const { return merged_; }
  int64_t handed_over() const { return handed_over_; }
  int64_t restored() const { return restored_; }

 private:
  struct Sent {
    int64_t world = 0;
    int64_t step = 0;
    int rank = 0;
    int layer = 0;
    v1::FactorKind kind = v1::FACTOR_KIND_UNSPECIFIED;
    int64_t rows = 0;
    Tensor values;
  };
  // (world, step, layer, rank, kind).
  using Identity = std::tuple<int64_t, int64_t, int, int, int>;
  using RoundKey = std::pair<int64_t, int64_t>;  // World, step.

  enum class Body { kData, kEmpty, kRefused };
  struct RoundBook {
    absl::Time first;
    std::map<std::pair<int, int>, Body> in;  // Per rank and kind.
  };
  struct LayerBook {
    uint64_t instance = 0;  // Of the state in the core; 0: not held.
    LayerOracle oracle;
    std::set<Identity> accepted;
    std::set<Identity> merged;
    std::set<Identity> merging;  // Of the merge that runs.
    RoundKey newest_merged = {0, -1};
    std::map<RoundKey, RoundBook> rounds;
    // The layer leaves, or left and came back: what is open of earlier steps
    // may close early once they are over.
    int64_t leaves_at = 0;
    int64_t updates_before = 0;
  };
  struct ServerBook {
    int64_t world = 0;
    uint64_t epoch = 0;
    std::set<int> mine;  // Layers that the configuration gives or leaves here.
    std::map<int, LayerBook> layers;
    std::map<RoundKey, std::set<int>> commits;
    int64_t merging = 0;
    int64_t staged = 0;  // Answered as something else than a repeat.
  };

  // One item of a push, and what the server said of it.
  struct Answered {
    Identity identity;
    Body body = Body::kEmpty;
    v1::ContributionOutcome outcome = v1::CONTRIBUTION_OUTCOME_UNSPECIFIED;
  };
  // A merge that begins.
  struct Beginning {
    std::string where;
    int layer = 0;
    LayerBook* book = nullptr;
    RoundKey round = {0, -1};  // Step -1: no part was looked at yet.
  };

  ServerBook& Sync(const ServerNode& server);
  void CheckAverages(const std::string& where, const LayerBook& book,
                     const server::LayerState& state);
  const Sent* Find(const Tensor& values) const;
  void Stage(const std::string& where, const Answered& answered, absl::Time now,
             ServerBook* server);
  std::set<int> TakeParts(const std::vector<server::MergeInput::Part>& parts,
                          v1::FactorKind kind, Beginning* merge);
  void CheckClosed(const Beginning& merge, const ServerBook& server,
                   const std::set<int>& ranks, absl::Time now);
  bool MayCloseForMove(const LayerBook& book, const RoundKey& round) const;
  // Contributions taken for rounds after `closed`.
  static int64_t CountOpen(const LayerBook& book, const RoundKey& closed);
  void CheckSum(const ServerNode& server, const ServerBook& book);

  const ClusterPlan& plan_;
  Verdict& verdict_;
  std::map<const void*, Sent> sent_;
  std::map<int64_t, std::vector<std::vector<int>>> contributors_;
  std::map<int64_t, int64_t> agreed_;  // World: newest step agreed on.
  std::map<const Process*, ServerBook> servers_;
  int64_t merged_ = 0;
  int64_t handed_over_ = 0;
  int64_t restored_ = 0;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_CONTRIBUTION_CHECK_H_
