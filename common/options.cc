#include "common/options.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/option_values.h"

namespace kronserve {
namespace {

constexpr char kConfig[] = "config";
constexpr char kHelp[] = "help";
constexpr char kPrintConfig[] = "print-config";
constexpr char kVersion[] = "version";
const char* const kBuiltins[] = {kConfig, kPrintConfig, kVersion, kHelp};

// A configuration is a page or two; more is the wrong file.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

// Levenshtein distance: insertions, deletions and replacements.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  return absl::StrSplit(text, separator);
}

// The text of the file, or why it cannot be had.
std::string ReadWholeFile(const std::string& path, std::string* text) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"),
                                             &std::fclose);
  if (file == nullptr) return std::strerror(errno);
  text->resize(kMaxFileBytes + 1);
  text->resize(std::fread(text->data(), 1, text->size(), file.get()));
  if (std::ferror(file.get()) != 0) return std::strerror(errno);
  if (text->size() > kMaxFileBytes) return "larger than 1 MiB";
  return "";
}

// `line` without its comment and outer blanks.
std::string WithoutComment(const std::string& line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) quoted = !quoted;
    const bool after_blank = i == 0 || absl::ascii_isspace(line[i - 1]);
    if (line[i] == '#' && !quoted && after_blank) {
      return std::string(absl::StripAsciiWhitespace(line.substr(0, i)));
    }
  }
  return std::string(absl::StripAsciiWhitespace(line));
}

// A value of a file, quotes taken off; false when they do not match.
bool Unquote(std::string* value) {
  if (value->empty() || value->front() != '"') return true;
  if (value->size() < 2 || value->back() != '"') return false;
  return absl::CUnescape(value->substr(1, value->size() - 2), value);
}

std::string QuoteIfNeeded(const std::string& value) {
  if (value.find_first_of(" \t\n\r\"\\#") == std::string::npos) return value;
  return absl::StrCat("\"", absl::CEscape(value), "\"");
}

// `text` in lines of at most 80 characters, each indented by `indent`.
std::string Wrapped(const std::string& text,
                    const std::string& indent = "      ") {
  std::string lines;
  std::string line;
  for (const std::string& word : SplitAt(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > 80) {
      absl::StrAppend(&lines, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? indent : " ", word);
  }
  return absl::StrCat(lines, line, "\n");
}

}  // namespace

OptionSet::OptionSet(std::string program, std::string purpose)
    : program_(std::move(program)), purpose_(std::move(purpose)) {}

OptionSet::Option* OptionSet::AddOption(const std::string& name,
                                        const std::string& help,
                                        const std::string& kind, Setter set,
                                        std::function<std::string()> show) {
  Option option;
  option.name = name;
  option.help = help;
  option.kind = kind;
  option.default_value = show();
  option.set = std::move(set);
  option.show = std::move(show);
  options_.push_back(std::move(option));
  return &options_.back();
}

void OptionSet::Add(const std::string& name, std::string* target,
                    const std::string& help) {
  const auto set = [target](const std::string& text) {
    *target = text;
    return std::string();
  };
  AddOption(name, help, "TEXT", set, [target] { return *target; });
}

void OptionSet::Add(const std::string& name, std::string* target,
                    const std::string& help,
                    const std::vector<std::string>& choices) {
  const auto set = [target, choices](const std::string& text) {
    return ParseChoice(text, choices, target);
  };
  AddOption(name, help, absl::StrJoin(choices, "|"), set,
            [target] { return *target; });
}

void OptionSet::Add(const std::string& name, bool* target,
                    const std::string& help) {
  const auto set = [target](const std::string& text) {
    return ParseBool(text, target);
  };
  const auto show = [target] {
    return std::string(*target ? "true" : "false");
  };
  AddOption(name, help, "", set, show)->is_bool = true;
}

void OptionSet::Add(const std::string& name, int64_t* target,
                    const std::string& help, IntRange range) {
  const auto set = [target, range](const std::string& text) {
    return ParseInteger(text, range.least, range.most, target);
  };
  AddOption(name, absl::StrCat(help, "; ", RangeText(range.least, range.most)),
            "N", set, [target] { return absl::StrCat(*target); });
}

void OptionSet::Add(const std::string& name, double* target,
                    const std::string& help, RealRange range) {
  const auto set = [target, range](const std::string& text) {
    return ParseReal(text, range.least, range.most, target);
  };
  AddOption(name, absl::StrCat(help, "; ", RangeText(range.least, range.most)),
            "X", set, [target] { return FormatReal(*target); });
}

void OptionSet::Add(const std::string& name, absl::Duration* target,
                    const std::string& help) {
  const auto set = [target](const std::string& text) {
    return ParsePositiveDuration(text, target);
  };
  AddOption(name, help, "TIME", set,
            [target] { return absl::FormatDuration(*target); });
}

void OptionSet::AddBytes(const std::string& name, int64_t* target,
                         const std::string& help) {
  const auto set = [target](const std::string& text) {
    return ParseSize(text, target);
  };
  AddOption(name, help, "SIZE", set, [target] { return FormatSize(*target); });
}

void OptionSet::Require(const std::string& name) {
  Find(name)->required = true;
}

void OptionSet::Check(std::function<std::string()> relation) {
  relations_.push_back(std::move(relation));
}

OptionSet::Option* OptionSet::Find(const std::string& name) {
  for (Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::string OptionSet::UnknownWord(const std::string& name) const {
  std::vector<std::string> words(std::begin(kBuiltins), std::end(kBuiltins));
  for (const Option& option : options_) words.push_back(option.name);
  std::string nearest;
  size_t best = std::min<size_t>(2, name.size() / 2) + 1;
  for (const std::string& word : words) {
    const size_t distance = EditDistance(name, word);
    if (distance < best) {
      best = distance;
      nearest = word;
    }
  }
  if (nearest.empty()) return "unknown option";
  return absl::StrCat("unknown option; did you mean '", nearest, "'?");
}

std::vector<OptionSet::Flag> OptionSet::SplitFlags(
    const std::vector<std::string>& args) {
  std::vector<Flag> flags;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i] == "-h" ? "--help" : args[i];
    if (!absl::StartsWith(arg, "--") || arg == "--") {
      faults_.push_back(absl::StrCat(
          "'", arg, "': options are written --name=value or --name value"));
      continue;
    }
    const size_t equals = arg.find('=');
    Flag flag;
    flag.name =
        arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (equals != std::string::npos) flag.value = arg.substr(equals + 1);
    const Option* option = Find(flag.name);
    const bool takes_value =
        flag.name == kConfig || (option != nullptr && !option->is_bool);
    if (!flag.value.has_value() && takes_value && i + 1 < args.size() &&
        !absl::StartsWith(args[i + 1], "--")) {
      flag.value = args[++i];
    }
    flags.push_back(std::move(flag));
  }
  return flags;
}

bool OptionSet::TakeBuiltin(const Flag& flag, std::string* config_file) {
  if (flag.name == kConfig) {
    *config_file = flag.value.value_or("");
    if (config_file->empty()) {
      faults_.push_back("--config: needs the name of a file");
    }
    return true;
  }
  bool* wanted = flag.name == kHelp          ? &want_help_
                 : flag.name == kVersion     ? &want_version_
                 : flag.name == kPrintConfig ? &want_config_
                                             : nullptr;
  if (wanted == nullptr) return false;
  *wanted = true;
  if (flag.value.has_value()) {
    faults_.push_back(absl::StrCat("--", flag.name, ": takes no value"));
  }
  return true;
}

void OptionSet::ReadFile(const std::string& path) {
  std::string text;
  const std::string fault = ReadWholeFile(path, &text);
  if (!fault.empty()) {
    faults_.push_back(
        absl::StrCat("cannot read configuration file '", path, "': ", fault));
    return;
  }
  int number = 0;
  for (const std::string& line : SplitAt(text, '\n')) {
    const std::string content = WithoutComment(line);
    ++number;
    if (!content.empty()) ReadLine(content, absl::StrCat(path, ":", number));
  }
}

void OptionSet::ReadLine(const std::string& line, const std::string& where) {
  const auto report = [this, &line, &where](const std::string& fault) {
    faults_.push_back(absl::StrCat(where, ": ", line, ": ", fault));
  };
  const size_t equals = line.find('=');
  if (equals == std::string::npos) return report("is not 'name = value'");
  const std::string name(absl::StripAsciiWhitespace(line.substr(0, equals)));
  std::string value(absl::StripAsciiWhitespace(line.substr(equals + 1)));
  Option* option = Find(name);
  if (option == nullptr) return report(UnknownWord(name));
  if (option->in_file) return report("stands in the file twice");
  option->in_file = true;
  if (!Unquote(&value)) return report("the quotes do not match");
  if (std::string fault = option->set(value); !fault.empty()) report(fault);
}

void OptionSet::SetFlag(const Flag& flag) {
  const auto report = [this, &flag](const std::string& fault) {
    faults_.push_back(absl::StrCat(
        "--", flag.name,
        flag.value.has_value() ? absl::StrCat("=", *flag.value) : "", ": ",
        fault));
  };
  Option* option = Find(flag.name);
  if (option == nullptr) return report(UnknownWord(flag.name));
  if (!flag.value.has_value() && !option->is_bool) {
    return report(
        absl::StrCat("needs a value: --", flag.name, "=", option->kind));
  }
  const std::string fault = option->set(flag.value.value_or("true"));
  if (!fault.empty()) report(fault);
}

void OptionSet::CheckRequired() {
  for (const Option& option : options_) {
    if (!option.required || !option.show().empty()) continue;
    faults_.push_back(absl::StrCat("--", option.name, "=", option.kind,
                                   ": must be given: ", option.help));
  }
}

absl::Status OptionSet::Parse(const std::vector<std::string>& args) {
  faults_.clear();
  want_help_ = want_version_ = want_config_ = false;
  for (Option& option : options_) option.in_file = false;
  std::string config_file;
  std::vector<Flag> flags;
  for (Flag& flag : SplitFlags(args)) {
    if (!TakeBuiltin(flag, &config_file)) flags.push_back(std::move(flag));
  }
  if (want_help_ || want_version_) return absl::OkStatus();
  if (!config_file.empty()) ReadFile(config_file);
  for (const Flag& flag : flags) SetFlag(flag);
  CheckRequired();
  for (const auto& relation : relations_) {
    std::string fault = relation();
    if (!fault.empty()) faults_.push_back(std::move(fault));
  }
  if (faults_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(faults_, "\n"));
}

bool OptionSet::ParseOrExit(int argc, char** argv, int* exit_code) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const absl::Status status = Parse(args);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %d fault%s in the options:\n", program_.c_str(),
                 static_cast<int>(faults_.size()),
                 faults_.size() == 1 ? "" : "s");
    for (const std::string& fault : faults_) {
      std::fprintf(stderr, "  %s\n", fault.c_str());
    }
    std::fprintf(stderr, "Run '%s --help' for all options.\n",
                 program_.c_str());
    *exit_code = 2;
    return true;
  }
  *exit_code = 0;
  if (want_help_) {
    std::fputs(Help().c_str(), stdout);
  } else if (want_version_) {
    std::printf("%s %s\n", program_.c_str(), KRONSERVE_VERSION);
  } else if (want_config_) {
    std::fputs(Config().c_str(), stdout);
  }
  return want_help_ || want_version_ || want_config_;
}

std::string OptionSet::Help() const {
  std::string help = absl::StrCat(
      Wrapped(absl::StrCat(program_, " ", KRONSERVE_VERSION, ": ", purpose_),
              ""),
      "\nUsage: ", program_,
      " [--option=value ...]\n\nOptions, with their defaults in brackets:\n\n");
  for (const Option& option : options_) {
    const std::string note =
        option.required ? " (must be given)"
        : option.default_value.empty()
            ? ""
            : absl::StrCat(" [", option.default_value, "]");
    absl::StrAppend(&help, "  --", option.name, option.is_bool ? "" : "=",
                    option.kind, "\n", Wrapped(absl::StrCat(option.help, note)),
                    "\n");
  }
  absl::StrAppend(
      &help, "  --config=FILE\n",
      Wrapped("Read options from FILE first: one `name = value` a line, the "
              "words above without dashes in front, '#' starts a comment. "
              "Options given on the command line win."),
      "\n  --print-config\n",
      Wrapped("Print the resulting options in the form that --config reads, "
              "and exit."),
      "\n  --version\n", Wrapped("Print the version and exit."), "\n  --help\n",
      Wrapped("Print this and exit."));
  absl::StrAppend(&help,
                  "\nTIME is 500ms, 2s or 5m; SIZE is 4096, 512KiB, 64MiB or "
                  "2GiB.\nExit status: 0 when all went well, 1 when not, 2 "
                  "when the options have a fault.\n");
  return help;
}

std::string OptionSet::Config() const {
  std::string config =
      absl::StrCat("# ", program_, " ", KRONSERVE_VERSION, "\n");
  for (const Option& option : options_) {
    absl::StrAppend(&config, option.name, " = ", QuoteIfNeeded(option.show()),
                    "\n");
  }
  return config;
}

}  // namespace kronserve
