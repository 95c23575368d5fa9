#include "tests/simulation/progress_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/held_layer.h"
#include "tests/simulation/environment.h"
#include "tests/simulation/server_node.h"

namespace kronserve::simulation {

void ProgressCheck::OnSent(const v1::ConfigureJobRequest& request,
                           const scheduler::StateMap& durable) {
  verdict_.Require(request.term() >= term_, [&] {
    return absl::StrCat("term went back: ", request.term(), " is sent after ",
                        term_);
  });
  term_ = std::max(term_, request.term());
  Remember(request.config().assignment(), "a server");
  RequireDurable(request.config().assignment().epoch(), durable, "a server");
}

void ProgressCheck::OnTold(const v1::Assignment& assignment,
                           const scheduler::StateMap& durable) {
  Remember(assignment, "a rank");
  RequireDurable(assignment.epoch(), durable, "a rank");
}

// One epoch is one map, in whatever life of the scheduler it was made.
void ProgressCheck::Remember(const v1::Assignment& assignment,
                             const char* what) {
  std::string text;
  for (const v1::LayerOwner& owner : assignment.owners()) {
    absl::StrAppend(&text, " ", owner.server(), " from ", owner.from_step());
  }
  const auto [it, is_new] = assignments_.emplace(assignment.epoch(), text);
  verdict_.Require(is_new || it->second == text, [&, &known = it->second] {
    return absl::StrCat("epoch ", assignment.epoch(),
                        " is two assignments:", known, " and, sent to ", what,
                        ",", text);
  });
}

void ProgressCheck::RequireDurable(uint64_t epoch,
                                   const scheduler::StateMap& durable,
                                   const char* whom) {
  v1::JobConfig stored;
  const auto found = durable.find(absl::StrCat("job/", kJob));
  if (found != durable.end()) (void)stored.ParseFromString(found->second);
  verdict_.Require(stored.assignment().epoch() >= epoch, [&] {
    return absl::StrCat("epoch ", epoch, " was sent to ", whom, " while epoch ",
                        stored.assignment().epoch(),
                        " is the newest durable one");
  });
}

void ProgressCheck::OnServer(const ServerNode& server) {
  Seen& seen = servers_[server.process().get()];
  const server::ServerCore& core = server.core();
  const std::string& name = server.process()->name();
  verdict_.Require(core.term_seen() >= seen.term, [&] {
    return absl::StrCat(name, ": term went back from ", seen.term, " to ",
                        core.term_seen());
  });
  seen.term = core.term_seen();
  for (const v1::JobHeld& held : core.Held()) {
    verdict_.Require(
        held.world_version() >= seen.world && held.epoch() >= seen.epoch, [&] {
          return absl::StrCat(name, ": world or epoch went back from ",
                              seen.world, ", ", seen.epoch, " to ",
                              held.world_version(), ", ", held.epoch());
        });
    if (held.world_version() != seen.world) seen.closed.clear();
    seen.world = held.world_version();
    seen.epoch = held.epoch();
  }
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const server::HeldLayer* held = core.FindHeldLayer(kJob, layer);
    if (held == nullptr) continue;
    std::pair<uint64_t, int64_t>& known = seen.closed[layer];
    const int64_t now = held->state.rounds().closed_through();
    verdict_.Require(known.first != held->instance || now >= known.second, [&] {
      return absl::StrCat(name, ", layer ", layer,
                          ": closed_through went back from ", known.second,
                          " to ", now);
    });
    known = {held->instance, now};
  }
}

void ProgressCheck::OnRank(const Process* rank, int64_t world, uint64_t held,
                           uint64_t used) {
  RankSeen& seen = ranks_[rank];
  verdict_.Require(world >= seen.world, [&] {
    return absl::StrCat(rank->name(), ": world went back from ", seen.world,
                        " to ", world);
  });
  const bool same = world == seen.world;
  verdict_.Require(!same || (held >= seen.held && used >= seen.used), [&] {
    return absl::StrCat(rank->name(), ": epochs went back from ", seen.held,
                        ", ", seen.used, " to ", held, ", ", used);
  });
  seen = {world, held, used};
}

void ProgressCheck::OnWorld(const v1::World& world) {
  std::string text;
  for (const v1::RankInfo& rank : world.ranks()) {
    absl::StrAppend(&text, " ", rank.incarnation());
  }
  absl::StrAppend(&text, " from step ", world.start_step());
  const auto [it, is_new] = worlds_.emplace(world.version(), text);
  verdict_.Require(is_new || it->second == text, [&, &known = it->second] {
    return absl::StrCat("world ", world.version(), " is two worlds:", known,
                        " and", text);
  });
}

}  // namespace kronserve::simulation
