#include "tests/simulation/agreement_check.h"

#include "absl/strings/str_cat.h"

namespace kronserve::simulation {
namespace {

std::string Describe(const AppliedLayer& layer) {
  if (!layer.preconditioned) return "fallback";
  return absl::StrCat("version ", layer.version, " with ",
                      absl::Hex(layer.checksum));
}

}  // namespace

void AgreementCheck::OnAnswer(const Process* server, const std::string& name,
                              int64_t world, int64_t step,
                              const server::Reply& reply) {
  const bool preconditioned =
      reply.reply.outcome() == v1::LAYER_OUTCOME_PRECONDITIONED;
  verdict_.Require(preconditioned == (reply.value != nullptr), [&] {
    return absl::StrCat("layer ", reply.reply.layer(),
                        ": the outcome does not fit the value");
  });
  if (!preconditioned) return;
  const auto [it, is_new] =
      answers_[{world, step, reply.reply.layer()}].emplace(
          server, Given{name, reply.reply.version(), reply.reply.checksum()});
  const Given& first = it->second;
  verdict_.Require(is_new || (first.version == reply.reply.version() &&
                              first.checksum == reply.reply.checksum()),
                   [&] {
                     return absl::StrCat(
                         name, " answers layer ", reply.reply.layer(),
                         " of world ", world, ", step ", step, " with version ",
                         reply.reply.version(), ", and before with version ",
                         first.version);
                   });
}

void AgreementCheck::OnApplied(int64_t world, int64_t step, int rank,
                               const std::vector<AppliedLayer>& layers,
                               uint64_t parameters) {
  for (size_t i = 0; i < layers.size(); ++i) {
    ++(layers[i].preconditioned ? preconditioned_ : fallbacks_);
    if (!layers[i].preconditioned) continue;
    bool given = false;
    for (const auto& [server, answer] :
         answers_[{world, step, static_cast<int>(i)}]) {
      given |= answer.version == layers[i].version &&
               answer.checksum == layers[i].checksum;
    }
    verdict_.Require(given, [&] {
      return absl::StrCat("world ", world, ", step ", step, ", layer ", i,
                          ": rank ", rank, " applied what no server answered");
    });
  }
  const auto [it, is_new] = applied_.emplace(std::make_pair(world, step),
                                             Outcome{rank, layers, parameters});
  if (is_new) return;
  const Outcome& first = it->second;
  for (size_t i = 0; i < layers.size(); ++i) {
    verdict_.Require(layers[i] == first.layers[i], [&] {
      return absl::StrCat("world ", world, ", step ", step, ", layer ", i,
                          ": rank ", first.rank, " applied ",
                          Describe(first.layers[i]), ", rank ", rank, " ",
                          Describe(layers[i]));
    });
  }
  verdict_.Require(parameters == first.parameters, [&] {
    return absl::StrCat("after world ", world, ", step ", step,
                        ": the parameters of ranks ", first.rank, " and ", rank,
                        " differ");
  });
}

}  // namespace kronserve::simulation
