// Flags and a configuration file with the same words.
//
// Layer: common. May include nothing else of this repository.
// Why not absl::flags: every fault is reported at once, a file may set the
// same words, and unknown keys are errors (docs/decisions/0003).

#ifndef KRONSERVE_COMMON_OPTIONS_H_
#define KRONSERVE_COMMON_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
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
//   int exit_code = 0;
//   if (options.ParseOrExit(argc, argv, &exit_code)) return exit_code;
//
// Words are written with dashes: --round-deadline=1s or --round-deadline 1s,
// or in a file `round-deadline = 1s`. In a file a '#' that starts a line or
// follows a blank starts a comment, and a value may stand in double quotes with
// C escapes. A flag beats the file, the last of two equal flags wins, a word
// may stand once in a file. A bool may be given bare (--verbose) or as
// --verbose=false. The builtin options are --config FILE, --print-config,
// --version, --help.
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
  // Must be given, by flag or file, and not be empty.
  void Require(const std::string& name);
  // A relation between options, run after parsing: an empty return is fine,
  // anything else is one line of fault.
  void Check(std::function<std::string()> relation);

  // Sets the targets from `args` (without the program name) and the file that
  // --config names. A target whose value was refused keeps its default. With
  // --help or --version nothing is set or checked.
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
  // Empty: accepted. Otherwise what is wrong with the value.
  using Setter = std::function<std::string(const std::string&)>;
  struct Option {
    std::string name;
    std::string help;
    std::string kind;           // What --help shows after '='.
    std::string default_value;  // As text, at the time of Add().
    bool is_bool = false;
    bool required = false;
    bool in_file = false;
    Setter set;
    std::function<std::string()> show;
  };

  // A word of the command line; no value when it stood bare.
  struct Flag {
    std::string name;
    std::optional<std::string> value;
  };

  Option* Find(const std::string& name);
  // Returns the new option, whose other members the caller may set.
  Option* AddOption(const std::string& name, const std::string& help,
                    const std::string& kind, Setter set,
                    std::function<std::string()> show);
  std::string UnknownWord(const std::string& name) const;
  std::vector<Flag> SplitFlags(const std::vector<std::string>& args);
  // True when `flag` is --help, --version, --print-config or --config.
  bool TakeBuiltin(const Flag& flag, std::string* config_file);
  void ReadFile(const std::string& path);
  void ReadLine(const std::string& line, const std::string& where);
  void SetFlag(const Flag& flag);
  void CheckRequired();

  std::string program_;
  std::string purpose_;
  std::vector<Option> options_;
  std::vector<std::function<std::string()>> relations_;
  // Collected by Parse(), one line each.
  std::vector<std::string> faults_;
  bool want_help_ = false;
  bool want_version_ = false;
  bool want_config_ = false;
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_OPTIONS_H_
