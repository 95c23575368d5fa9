// Flags and a configuration file with the same words.
//
// Layer: common. May include nothing else of this repository.
// Why not absl::flags: every fault is reported at once, a file may set the
// same words, and unknown keys are errors (docs/decisions/0003).

#ifndef KRONSERVE_COMMON_OPTIONS_H_
#define KRONSERVE_COMMON_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kronserve {

// The options of one program.
//
//   OptionSet options("kronserve-server", "Owns layers and preconditions.");
//   options.Add("listen", &listen, "host:port to serve on; port 0 is any");
//   options.Add("threads", &threads, "refresh threads", {1, 256});
//   if (auto exit_code = options.ParseOrExit(argc, argv)) return *exit_code;
//
// Words are written with dashes: --round-deadline=1s, or in a file
// `round-deadline = 1s` ('#' starts a comment). A flag beats the file; a bool
// may be given bare (--verbose) or as --verbose=false. The builtin options are
// --config FILE, --print-config, --version, --help.
//
// Thread safety: none.
// Lifetime:      the targets outlive the set; they hold the defaults until
//                Parse().
class OptionSet {
 public:
  struct IntRange {
    int64_t least;
    int64_t most;
  };
  struct RealRange {
    double least;
    double most;
  };

  OptionSet(std::string program, std::string purpose);

  void Add(const std::string& name, std::string* target,
           const std::string& help);
  // Only one of `choices` is taken.
  void Add(const std::string& name, std::string* target,
           const std::string& help, const std::vector<std::string>& choices);
  void Add(const std::string& name, bool* target, const std::string& help);
  void Add(const std::string& name, int64_t* target, const std::string& help,
           IntRange range);
  void Add(const std::string& name, double* target, const std::string& help,
           RealRange range);
  // Durations are written 500ms, 2s, 5m; must be above zero.
  void Add(const std::string& name, absl::Duration* target,
           const std::string& help);
  // Sizes are written 4096, 512KiB, 2GiB; must be above zero.
  void AddBytes(const std::string& name, int64_t* target,
                const std::string& help);
  // Must be given, by flag or file.
  void Require(const std::string& name);
  // A relation between options, run after parsing: an empty return is fine,
  // anything else is one line of fault.
  void Check(std::function<std::string()> relation);

  // Sets the targets from `args` (without the program name) and the file that
  // --config names.
  //
  // Errors:
  //   kInvalidArgument  every fault, one per line: unknown words, values that
  //                     do not parse or are out of range (with the range),
  //                     missing required ones, broken relations, a file that
  //                     cannot be read.
  absl::Status Parse(const std::vector<std::string>& args);

  // For main(): answers --help, --version and --print-config on stdout (exit
  // 0), reports faults on stderr (exit 2). Returns true when the program
  // should end with `*exit_code`.
  bool ParseOrExit(int argc, char** argv, int* exit_code);

  std::string Help() const;
  // "name = value" lines that Parse() accepts as a file.
  std::string Config() const;

 private:
  struct Option {
    std::string name;
    std::string help;
    std::string kind;  // what --help shows after '='
    bool is_bool = false;
    bool required = false;
    bool given = false;
    // Empty: accepted. Otherwise what is wrong with the value.
    std::function<std::string(const std::string&)> set;
    std::function<std::string()> show;
  };

  Option* Find(const std::string& name);
  void AddOption(Option option);
  void ReadFile(const std::string& path, std::vector<std::string>* faults);
  void Set(const std::string& name, const std::string& value,
           const std::string& where, std::vector<std::string>* faults);

  std::string program_;
  std::string purpose_;
  std::vector<Option> options_;
  std::vector<std::function<std::string()>> relations_;
  bool want_help_ = false;
  bool want_version_ = false;
  bool want_config_ = false;
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_OPTIONS_H_
