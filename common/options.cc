#include "common/options.h"
namespace kronserve {
OptionSet::OptionSet(std::string program, std::string purpose)
    : program_(std::move(program)), purpose_(std::move(purpose)) {}
}  // namespace kronserve
