// The text form of option values: numbers, durations, sizes.
//
// Layer: common. May include nothing else of this repository.
// Every Parse function returns an empty string and sets `value`, or returns
// what is wrong with `text` and leaves `value` alone. Every Format function
// gives text that its Parse function reads back to the same value.

#ifndef KRONSERVE_COMMON_OPTION_VALUES_H_
#define KRONSERVE_COMMON_OPTION_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace kronserve {

std::string ParseBool(const std::string& text, bool* value);

std::string ParseChoice(const std::string& text,
                        const std::vector<std::string>& choices,
                        std::string* value);

// Whole numbers from `least` to `most`, both included.
std::string ParseInteger(const std::string& text, int64_t least, int64_t most,
                         int64_t* value);

// Finite numbers from `least` to `most`, both included.
std::string ParseReal(const std::string& text, double least, double most,
                      double* value);
std::string FormatReal(double value);

// 500ms, 2s, 5m, 1h30m; above zero and finite.
std::string ParsePositiveDuration(const std::string& text,
                                  absl::Duration* value);

// Bytes, KiB, MiB, GiB or TiB; above zero, below 2^63.
std::string ParseSize(const std::string& text, int64_t* value);
std::string FormatSize(int64_t bytes);

// "from 1 to 256", or "at least 1" when the upper bound is no bound.
std::string RangeText(int64_t least, int64_t most);
std::string RangeText(double least, double most);

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_OPTION_VALUES_H_
