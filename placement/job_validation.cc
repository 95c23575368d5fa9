#include "placement/job_validation.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checksum.h"

namespace kronserve::placement {
namespace {

constexpr size_t kMaxFaults = 20;

class Faults {
 public:
  // Adds a fault unless `holds`.
  template <typename... Parts>
  void Require(bool holds, const Parts&... parts) {
    if (holds) return;
    ++count_;
    if (faults_.size() < kMaxFaults) faults_.push_back(absl::StrCat(parts...));
  }

  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    std::string text = absl::StrJoin(faults_, "; ");
    if (count_ > faults_.size()) {
      absl::StrAppend(&text, "; and ", count_ - faults_.size(), " more");
    }
    return absl::InvalidArgumentError(text);
  }

 private:
  size_t count_ = 0;
  std::vector<std::string> faults_;
};

bool IsScale(double value) { return std::isfinite(value) && value > 0; }

void CheckLayer(int index, const v1::LayerSpec& layer, Faults* faults) {
  const std::string who =
      absl::StrCat("layer ", index, " ('", layer.name().substr(0, 64), "')");
  const int64_t name_bytes = static_cast<int64_t>(layer.name().size());
  faults->Require(name_bytes >= 1 && name_bytes <= kMaxNameBytes, who,
                  ": the name has ", name_bytes, " bytes, allowed are 1 to ",
                  kMaxNameBytes);
  faults->Require(layer.kind() == v1::LAYER_KIND_LINEAR ||
                      layer.kind() == v1::LAYER_KIND_CONV2D,
                  who, ": kind ", layer.kind(), " is not known");
  faults->Require(layer.d_out() >= 1 && layer.d_out() <= kMaxDim, who,
                  ": d_out is ", layer.d_out(), ", allowed are 1 to ", kMaxDim);
  faults->Require(layer.d_in() >= 1 && layer.d_in() <= kMaxDim, who,
                  ": d_in is ", layer.d_in(), ", allowed are 1 to ", kMaxDim);
  faults->Require(!layer.has_bias() || layer.d_in() >= 2, who, ": d_in ",
                  layer.d_in(), " counts the bias column, so it is at least 2");
  faults->Require(IsScale(layer.scale_a()), who, ": scale_a is ",
                  layer.scale_a(), ", it must be finite and above 0");
  faults->Require(IsScale(layer.scale_g()), who, ": scale_g is ",
                  layer.scale_g(), ", it must be finite and above 0");
}

// One of an enum's values other than _UNSPECIFIED.
void CheckChoice(const char* name, int value, bool is_known, Faults* faults) {
  faults->Require(is_known && value != 0, name, " is ", value,
                  value == 0 ? ": it must be set" : ": it is not known");
}

void CheckChoices(const v1::JobOptions& options, Faults* faults) {
  CheckChoice("method", options.method(),
              v1::ComputeMethod_IsValid(options.method()), faults);
  CheckChoice("damping_form", options.damping_form(),
              v1::DampingForm_IsValid(options.damping_form()), faults);
  CheckChoice("factor_init", options.factor_init(),
              v1::FactorInit_IsValid(options.factor_init()), faults);
  CheckChoice("factor_source", options.factor_source(),
              v1::FactorSource_IsValid(options.factor_source()), faults);
  CheckChoice("refresh_schedule", options.refresh_schedule(),
              v1::RefreshSchedule_IsValid(options.refresh_schedule()), faults);
  CheckChoice("round_policy", options.round_policy(),
              v1::RoundPolicy_IsValid(options.round_policy()), faults);
  CheckChoice("fallback", options.fallback(),
              v1::FallbackKind_IsValid(options.fallback()), faults);
}

void CheckNumbers(const v1::JobOptions& options, Faults* faults) {
  faults->Require(options.factor_update_steps() >= 1, "factor_update_steps is ",
                  options.factor_update_steps(), ", it must be at least 1");
  faults->Require(options.inv_update_steps() >= 1, "inv_update_steps is ",
                  options.inv_update_steps(), ", it must be at least 1");
  faults->Require(options.has_max_staleness(), "max_staleness must be set");
  faults->Require(options.max_staleness() >= 0, "max_staleness is ",
                  options.max_staleness(), ", it must be at least 0");
  faults->Require(
      options.min_round_share() > 0 && options.min_round_share() <= 1,
      "min_round_share is ", options.min_round_share(),
      ", it must be above 0 and at most 1");
  faults->Require(options.step_budget_ms() > 0, "step_budget_ms is ",
                  options.step_budget_ms(), ", it must be above 0");
  faults->Require(options.round_deadline_ms() > 0, "round_deadline_ms is ",
                  options.round_deadline_ms(), ", it must be above 0");
  faults->Require(options.round_deadline_ms() <= options.step_budget_ms() / 2,
                  "round_deadline_ms is ", options.round_deadline_ms(),
                  ", at most half of step_budget_ms ", options.step_budget_ms(),
                  " is allowed");
  faults->Require(options.max_open_rounds() >= 1, "max_open_rounds is ",
                  options.max_open_rounds(), ", it must be at least 1");
}

void CheckRelations(const v1::JobOptions& options, Faults* faults) {
  faults->Require(options.method() != v1::COMPUTE_METHOD_INVERSE ||
                      options.damping_form() != v1::DAMPING_FORM_EXACT,
                  "damping_form exact is not a Kronecker product: use method "
                  "eigen, or damping_form factored");
  const bool synchronous =
      options.has_max_staleness() && options.max_staleness() == 0;
  const bool waits = options.round_policy() == v1::ROUND_POLICY_WAIT;
  faults->Require(!synchronous || waits,
                  "max_staleness 0 is synchronous and needs round_policy wait");
  faults->Require(options.has_deterministic(), "deterministic must be set");
  faults->Require(!options.deterministic() || (synchronous && waits),
                  "deterministic needs max_staleness 0 and round_policy wait");
}

std::string DescribeLayer(const v1::LayerSpec& layer) {
  return absl::StrCat(v1::LayerKind_Name(layer.kind()), " [", layer.d_out(),
                      ", ", layer.d_in(), "]",
                      layer.has_bias() ? " with bias" : "", ", scales ",
                      layer.scale_a(), " and ", layer.scale_g());
}

}  // namespace

absl::Status ValidateJob(const Layers& layers, const v1::JobOptions& options) {
  Faults faults;
  std::set<std::string> names;
  for (int i = 0; i < layers.size(); ++i) {
    CheckLayer(i, layers[i], &faults);
    faults.Require(names.insert(layers[i].name()).second, "layer ", i,
                   ": the name '", layers[i].name().substr(0, 64),
                   "' is taken by an earlier layer");
  }
  if (!layers.empty()) {
    CheckChoices(options, &faults);
    CheckNumbers(options, &faults);
    CheckRelations(options, &faults);
  }
  return faults.ToStatus();
}

std::string DescribeDifference(const Layers& a_layers,
                               const v1::JobOptions& a_options,
                               const Layers& b_layers,
                               const v1::JobOptions& b_options) {
  using google::protobuf::util::MessageDifferencer;
  if (a_layers.size() != b_layers.size()) {
    return absl::StrCat(a_layers.size(), " layers, was ", b_layers.size());
  }
  for (int i = 0; i < a_layers.size(); ++i) {
    const v1::LayerSpec& a = a_layers[i];
    const v1::LayerSpec& b = b_layers[i];
    if (a.name() != b.name()) {
      return absl::StrCat("layer ", i, " is '", a.name(), "', was '", b.name(),
                          "'");
    }
    if (!MessageDifferencer::Equals(a, b)) {
      return absl::StrCat("layer '", a.name(), "': ", DescribeLayer(a),
                          ", was ", DescribeLayer(b));
    }
  }
  if (a_layers.empty() || MessageDifferencer::Equals(a_options, b_options)) {
    return "";
  }
  std::string report;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(b_options, a_options);
  while (!report.empty() && report.back() == '\n') report.pop_back();
  for (char& c : report) {
    if (c == '\n') c = ',';
  }
  return absl::StrCat("options: ", report);
}

uint64_t PlanHash(const Layers& layers, const v1::JobOptions& options,
                  int64_t world_size) {
  v1::JobConfig plan;
  *plan.mutable_layers() = layers;
  if (!layers.empty()) *plan.mutable_options() = options;
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    plan.SerializeToCodedStream(&coded);
    coded.WriteLittleEndian64(static_cast<uint64_t>(world_size));
  }
  const uint64_t hash = Checksum(bytes.data(), bytes.size());
  return hash == 0 ? 1 : hash;
}

}  // namespace kronserve::placement
