#include "tests/simulation/contribution_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/held_layer.h"
#include "tests/simulation/environment.h"
#include "tests/simulation/server_node.h"

namespace kronserve::simulation {
namespace {

std::string Where(const ServerNode& server, int layer) {
  return absl::StrCat(server.process()->name(), ", layer ", layer);
}

}  // namespace

void ContributionCheck::OnSent(int64_t world, int rank,
                               const client::StepRequest& request) {
  for (const client::Contribution& contribution : request.contributions) {
    if (contribution.values == nullptr) continue;
    const v1::ContributionItem& item = contribution.item;
    const int64_t rows =
        item.kind() == v1::FACTOR_KIND_INPUT ? item.loss_rows() : item.rows();
    sent_[contribution.values.get()] = {
        world, request.step,       rank, item.layer(), item.kind(),
        rows,  contribution.values};
  }
}

const ContributionCheck::Sent* ContributionCheck::Find(
    const Tensor& values) const {
  const auto found = sent_.find(values.get());
  return found == sent_.end() ? nullptr : &found->second;
}

// The books of a server, as its core holds layers now: a state that is not the
// one of before begins with nothing.
ContributionCheck::ServerBook& ContributionCheck::Sync(
    const ServerNode& server) {
  ServerBook& book = servers_[server.process().get()];
  for (int layer = 0; layer < static_cast<int>(plan_.layers.size()); ++layer) {
    const server::HeldLayer* held = server.core().FindHeldLayer(kJob, layer);
    const uint64_t instance = held == nullptr ? 0 : held->instance;
    LayerBook& mine = book.layers[layer];
    if (mine.instance != instance) {
      mine = LayerBook();
      mine.instance = instance;
    }
    if (held != nullptr && held->is_leaving()) {
      mine.leaves_at = std::max(mine.leaves_at, held->until_step);
    }
  }
  return book;
}

void ContributionCheck::OnConfigured(const ServerNode& server,
                                     const v1::JobConfig& config) {
  ServerBook& book = servers_[server.process().get()];
  const int64_t world = config.world().version();
  const uint64_t epoch = config.assignment().epoch();
  // An older one changed nothing.
  if (world < book.world || epoch <= book.epoch) return;
  book.world = world;
  book.epoch = epoch;
  const std::set<int> before = std::exchange(book.mine, {});
  const std::string& name = server.process()->name();
  for (const v1::LayerOwner& owner : config.assignment().owners()) {
    const int layer = owner.layer();
    if (owner.server() != name && owner.source() != name) continue;
    book.mine.insert(layer);
    const server::HeldLayer* held = server.core().FindHeldLayer(kJob, layer);
    const bool kept = held != nullptr && held->instance != 0 &&
                      held->instance == book.layers[layer].instance;
    verdict_.Require(before.count(layer) > 0 || !kept, [&] {
      return absl::StrCat(Where(server, layer), ": epoch ", epoch,
                          " goes on with the state of an older epoch");
    });
  }
  Sync(server);
}

void ContributionCheck::OnStaged(const ServerNode& server,
                                 const v1::PushFactorsHeader& header,
                                 const v1::PushFactorsResponse& response,
                                 absl::Time now) {
  ServerBook& book = Sync(server);
  const v1::CallHeader& call = header.call();
  for (int i = 0; i < header.items_size(); ++i) {
    const v1::ContributionItem& item = header.items(i);
    const Identity identity(call.world_version(), call.step(), item.layer(),
                            call.rank(), item.kind());
    Stage(
        absl::StrCat(Where(server, item.layer()), ", step ", call.step(),
                     ", rank ", call.rank()),
        {identity,
         item.body() == v1::CONTRIBUTION_BODY_DATA ? Body::kData : Body::kEmpty,
         response.results(i).outcome()},
        now, &book);
  }
}

void ContributionCheck::Stage(const std::string& where,
                              const Answered& answered, absl::Time now,
                              ServerBook* server) {
  const Identity& identity = answered.identity;
  const auto& [world, step, index, rank, kind] = identity;
  LayerBook& layer = server->layers[index];
  RoundBook& round =
      layer.rounds.try_emplace({world, step}, RoundBook{now, {}}).first->second;
  switch (answered.outcome) {
    case v1::CONTRIBUTION_OUTCOME_ACCEPTED:
      verdict_.Require(layer.accepted.insert(identity).second, [&] {
        return absl::StrCat(where, ": one contribution was taken twice");
      });
      round.in[{rank, kind}] = answered.body;
      ++server->staged;
      break;
    case v1::CONTRIBUTION_OUTCOME_DUPLICATE:
      verdict_.Require(layer.accepted.count(identity) > 0, [&] {
        return absl::StrCat(where, ": a first contribution is a duplicate");
      });
      break;
    case v1::CONTRIBUTION_OUTCOME_REFUSED:
      // A repeat of a refused one is refused again and not counted.
      if (!round.in.emplace(std::make_pair(rank, kind), Body::kRefused).second)
        break;
      ++server->staged;
      break;
    default:
      ++server->staged;
  }
}

void ContributionCheck::OnStepEnds(const ServerNode& server,
                                   const v1::PreconditionHeader& header,
                                   const absl::Status& status) {
  if (!status.ok() && !absl::IsResourceExhausted(status)) return;
  if (header.end() != v1::STEP_END_COMMIT) return;
  const v1::CallHeader& call = header.call();
  servers_[server.process().get()]
      .commits[{call.world_version(), call.step()}]
      .insert(call.rank());
}

// Notes these as merged; the ranks they came from.
std::set<int> ContributionCheck::TakeParts(
    const std::vector<server::MergeInput::Part>& parts, v1::FactorKind kind,
    Beginning* merge) {
  const std::string& where = merge->where;
  RoundKey& round = merge->round;
  std::set<int> ranks;
  for (const server::MergeInput::Part& part : parts) {
    const Sent* sent = Find(part.sum);
    const bool fits = sent != nullptr && sent->layer == merge->layer &&
                      sent->kind == kind && sent->rows == part.rows &&
                      (ranks.empty() || sent->rank > *ranks.rbegin());
    if (!verdict_.Require(fits, [&] {
          return absl::StrCat(where,
                              ": merges what nobody sent for this layer");
        })) {
      return ranks;
    }
    if (round.second < 0) round = {sent->world, sent->step};
    verdict_.Require(round == RoundKey(sent->world, sent->step), [&] {
      return absl::StrCat(where, ": one merge takes from steps ", round.second,
                          " and ", sent->step);
    });
    const Identity identity(sent->world, sent->step, merge->layer, sent->rank,
                            kind);
    verdict_.Require(merge->book->merged.insert(identity).second, [&] {
      return absl::StrCat(where, ", step ", sent->step, ", rank ", sent->rank,
                          ": one contribution is merged twice");
    });
    verdict_.Require(merge->book->accepted.count(identity) > 0, [&] {
      return absl::StrCat(where, ", step ", sent->step, ", rank ", sent->rank,
                          ": merged, but never taken");
    });
    ranks.insert(sent->rank);
  }
  return ranks;
}

void ContributionCheck::OnMergeBegins(const ServerNode& server,
                                      const server::MergeTask& task,
                                      absl::Time now) {
  ServerBook& book = Sync(server);
  ++book.merging;
  const int layer = task.key.layer;
  LayerBook& mine = book.layers[layer];
  Beginning merge;
  merge.where = Where(server, layer);
  merge.layer = layer;
  merge.book = &mine;
  const std::set<int> a =
      TakeParts(task.input.a, v1::FACTOR_KIND_INPUT, &merge);
  const std::set<int> g =
      TakeParts(task.input.g, v1::FACTOR_KIND_OUTPUT, &merge);
  const std::string& where = merge.where;
  const RoundKey& round = merge.round;
  verdict_.Require(a == g && !a.empty(), [&] {
    return absl::StrCat(where, ", step ", round.second,
                        ": A and G do not come from the same ranks");
  });
  verdict_.Require(mine.newest_merged < round, [&] {
    return absl::StrCat(where, ": step ", round.second,
                        " is merged after step ", mine.newest_merged.second);
  });
  mine.newest_merged = round;
  mine.merging.clear();
  for (const int rank : a) {
    for (const int kind : {v1::FACTOR_KIND_INPUT, v1::FACTOR_KIND_OUTPUT}) {
      mine.merging.emplace(round.first, round.second, layer, rank, kind);
    }
  }
  CheckClosed(merge, book, a, now);
}

// A layer that leaves waits for nobody once all ranks are past its last step
// here: moving_layers.md.
bool ContributionCheck::MayCloseForMove(const LayerBook& book,
                                        const RoundKey& round) const {
  const auto agreed = agreed_.find(round.first);
  return round.second < book.leaves_at && agreed != agreed_.end() &&
         agreed->second >= book.leaves_at - 1;
}

// The round was complete, its policy let it close without some, or the layer
// had to go.
void ContributionCheck::CheckClosed(const Beginning& merge,
                                    const ServerBook& server,
                                    const std::set<int>& ranks,
                                    absl::Time now) {
  const std::string& where = merge.where;
  const LayerBook& book = *merge.book;
  const RoundKey& round = merge.round;
  const std::vector<int>& expected = contributors_[round.first][merge.layer];
  const auto in = book.rounds.find(round);
  const auto commits = server.commits.find(round);
  if (in == book.rounds.end() || commits == server.commits.end()) {
    verdict_.Require(false, [&] {
      return absl::StrCat(where, ", step ", round.second,
                          ": merged without a commit");
    });
    return;
  }
  const auto body = [&](int rank, int kind) {
    const auto found = in->second.in.find({rank, kind});
    return found == in->second.in.end() ? std::optional<Body>() : found->second;
  };
  size_t ready = 0;
  size_t missing_data = 0;
  for (const int rank : expected) {
    const auto a = body(rank, v1::FACTOR_KIND_INPUT);
    const auto g = body(rank, v1::FACTOR_KIND_OUTPUT);
    const bool is_ready =
        a.has_value() && g.has_value() && commits->second.count(rank) > 0;
    ready += is_ready ? 1 : 0;
    const bool has_data = a == Body::kData && g == Body::kData;
    if (is_ready && has_data && ranks.count(rank) == 0) ++missing_data;
    verdict_.Require(ranks.count(rank) == 0 || (is_ready && has_data), [&] {
      return absl::StrCat(where, ", step ", round.second, ": rank ", rank,
                          " is merged without its commit");
    });
  }
  if (ready == expected.size() && missing_data == 0) return;
  if (MayCloseForMove(book, round)) return;
  const v1::JobOptions& options = plan_.options;
  const auto newer =
      std::distance(book.rounds.upper_bound(round),
                    book.rounds.lower_bound({round.first + 1, -1}));
  const bool due = now >= in->second.first +
                              absl::Milliseconds(options.round_deadline_ms()) ||
                   newer >= options.max_open_rounds();
  const bool enough =
      static_cast<double>(ready) >=
      options.min_round_share() * static_cast<double>(expected.size()) - 1e-9;
  verdict_.Require(
      options.round_policy() == v1::ROUND_POLICY_PARTIAL && due && enough, [&] {
        return absl::StrCat(where, ", step ", round.second,
                            ": closed early, with ", ready, " of ",
                            expected.size(), " contributors in and committed");
      });
}

void ContributionCheck::BeforeMergeEnds(const ServerNode& server,
                                        const server::MergeTask& task) {
  const server::LayerState* state =
      server.core().FindLayerState(kJob, task.key.layer);
  Sync(server).layers[task.key.layer].updates_before =
      state == nullptr ? 0 : state->updates();
}

void ContributionCheck::OnMergeEnds(const ServerNode& server,
                                    const server::MergeTask& task) {
  ServerBook& book = Sync(server);
  --book.merging;
  LayerBook& mine = book.layers[task.key.layer];
  const server::LayerState* state =
      server.core().FindLayerState(kJob, task.key.layer);
  // The layer may have gone meanwhile; then the merge went with it.
  if (state == nullptr || state->updates() == mine.updates_before) return;
  mine.merging.clear();
  const std::string where = Where(server, task.key.layer);
  verdict_.Require(task.key.instance == mine.instance, [&] {
    return absl::StrCat(where, ": takes the merge of an older state");
  });
  const auto parts = [&](const std::vector<server::MergeInput::Part>& from) {
    std::vector<LayerOracle::Part> to;
    for (const server::MergeInput::Part& part : from) {
      const Sent* sent = Find(part.sum);
      if (sent != nullptr) to.push_back({sent->values.get(), sent->rows});
      merged_ += sent != nullptr ? 1 : 0;
    }
    return to;
  };
  mine.oracle.Merge(plan_.options.factor_init(), task.input.factor_decay,
                    {parts(task.input.a), task.input.scale_a},
                    {parts(task.input.g), task.input.scale_g});
  CheckAverages(where, mine, *state);
}

void ContributionCheck::CheckAverages(const std::string& where,
                                      const LayerBook& book,
                                      const server::LayerState& state) {
  verdict_.Require(book.oracle.updates() == state.updates(), [&] {
    return absl::StrCat(where, ": ", state.updates(), " updates, expected ",
                        book.oracle.updates());
  });
  if (state.updates() == 0) return;
  const std::string difference =
      book.oracle.Difference(*state.averages().a, *state.averages().g);
  verdict_.Require(difference.empty(), [&] {
    return absl::StrCat(where, ", update ", state.updates(), ": average ",
                        difference);
  });
}

ContributionCheck::Lineage ContributionCheck::OnStateLeaves(
    const ServerNode& server, int layer, const v1::LayerSnapshot& state) {
  auto lineage = std::make_shared<LayerBook>(Sync(server).layers[layer]);
  // A merge that runs is not in the state yet.
  for (const Identity& identity : lineage->merging) {
    lineage->merged.erase(identity);
  }
  // What is staged for later steps stays behind, and is sent again.
  const Identity later(state.world_version(), state.closed_through() + 1, 0, 0,
                       0);
  lineage->accepted.erase(lineage->accepted.lower_bound(later),
                          lineage->accepted.end());
  lineage->newest_merged = {0, -1};
  for (const Identity& identity : lineage->merged) {
    lineage->newest_merged =
        std::max(lineage->newest_merged,
                 RoundKey(std::get<0>(identity), std::get<1>(identity)));
  }
  return lineage;
}

void ContributionCheck::OnStateCame(const ServerNode& server, int layer,
                                    const Lineage& lineage, bool from_server) {
  ++(from_server ? handed_over_ : restored_);
  LayerBook& mine = Sync(server).layers[layer];
  const server::LayerState* state = server.core().FindLayerState(kJob, layer);
  mine.oracle = lineage->oracle;
  mine.merged.insert(lineage->merged.begin(), lineage->merged.end());
  // What had come and was not merged is closed, or lost with that server.
  mine.accepted.insert(lineage->accepted.begin(), lineage->accepted.end());
  mine.newest_merged = std::max(mine.newest_merged, lineage->newest_merged);
  CheckAverages(Where(server, layer), mine, *state);
}

void ContributionCheck::OnServer(const ServerNode& server) {
  const ServerBook& book = Sync(server);
  // Merges that wait, for a running one or for the layer's state, are not seen
  // from outside.
  for (const auto& [layer, mine] : book.layers) {
    const server::HeldLayer* held = server.core().FindHeldLayer(kJob, layer);
    if (held != nullptr && held->is_awaited() && !held->state.IsQuiet()) return;
  }
  if (book.merging == 0) CheckSum(server, book);
}

int64_t ContributionCheck::CountOpen(const LayerBook& book,
                                     const RoundKey& closed) {
  int64_t open = 0;
  for (auto it = book.rounds.upper_bound(closed); it != book.rounds.end();
       ++it) {
    for (const auto& [who, body] : it->second.in) {
      open += body != Body::kRefused ? 1 : 0;
    }
  }
  return open;
}

// What was taken is what ended as one of the six, or is still open.
void ContributionCheck::CheckSum(const ServerNode& server,
                                 const ServerBook& book) {
  int64_t open = 0;
  for (const auto& [index, layer] : book.layers) {
    const server::LayerState* state = server.core().FindLayerState(kJob, index);
    if (state == nullptr) continue;
    open += CountOpen(layer, {book.world, state->rounds().closed_through()});
  }
  const v1::ServerCounters counters = server.core().Status().counters();
  const int64_t ended =
      counters.contributions_merged() + counters.contributions_empty() +
      counters.contributions_void() + counters.contributions_refused() +
      counters.contributions_late() + counters.contributions_lost();
  const int64_t left = book.staged - ended - open;
  verdict_.Require(left == 0, [&] {
    return absl::StrCat(server.process()->name(), ": ", book.staged,
                        " contributions came; ended: merged ",
                        counters.contributions_merged(), ", empty ",
                        counters.contributions_empty(), ", void ",
                        counters.contributions_void(), ", refused ",
                        counters.contributions_refused(), ", late ",
                        counters.contributions_late(), ", lost ",
                        counters.contributions_lost(), "; open ", open);
  });
}

}  // namespace kronserve::simulation
