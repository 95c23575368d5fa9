#include "scheduler/state_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::scheduler {

absl::StatusOr<uint64_t> RaiseTerm(StateStore* store, StateMap* loaded) {
  KRONSERVE_ASSIGN_OR_RETURN(StateMap state, store->Load());
  uint64_t term = 0;
  const auto found = state.find(kTermKey);
  if (found != state.end() && !absl::SimpleAtoi(found->second, &term)) {
    return absl::DataLossError(
        absl::StrCat(store->Describe(), ": the stored term '", found->second,
                     "' is not a number"));
  }
  term = std::max(term + 1, store->leadership());
  KRONSERVE_RETURN_IF_ERROR(store->Write({{kTermKey, absl::StrCat(term)}}));
  if (loaded != nullptr) *loaded = std::move(state);
  return term;
}

}  // namespace kronserve::scheduler
