// Restore drill: writes the layers of a network as background checkpoints,
// reads them back, compares every bit, and sets the rates against a plain
// write and fsync, and a plain read, of the same bytes in the same run.
//
// The plain file and the checkpoint of a layer follow one another, the one
// that comes first changing from layer to layer, so that what else the machine
// does meets both. Before it is read, a file is dropped from the page cache as
// far as the system heeds that. Values are drawn from a fixed seed.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "checkpoint/file_store.h"
#include "common/options.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

constexpr int64_t kPiece = int64_t{1} << 30;

struct DrillOptions {
  std::string table;
  std::string directory = ".";
  int64_t layers = 1000;
};

struct Sum {
  double seconds = 0;
  int64_t bytes = 0;
};

struct Sums {
  Sum plain_write, store_write, plain_read, store_read;
};

double Seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

absl::StatusOr<v1::JobConfig> ReadTable(const DrillOptions& options) {
  std::ifstream file(options.table);
  std::string line;
  if (!std::getline(file, line)) {
    return absl::NotFoundError(
        absl::StrCat("cannot read layer table '", options.table, "'"));
  }
  v1::JobConfig config;
  config.set_job("drill");
  config.mutable_world()->set_run_id("1");
  while (config.layers_size() < options.layers && std::getline(file, line)) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    int64_t d_in = 0;
    int64_t d_out = 0;
    int64_t bias = 0;
    if (cells.size() < 6 || !absl::SimpleAtoi(cells[3], &d_in) ||
        !absl::SimpleAtoi(cells[4], &d_out) ||
        !absl::SimpleAtoi(cells[5], &bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", options.table, "': '", line, "' is no layer"));
    }
    v1::LayerSpec* layer = config.add_layers();
    layer->set_name(cells[1]);
    layer->set_d_in(d_in + bias);
    layer->set_d_out(d_out);
  }
  return config;
}

Tensor Draw(int64_t elements, uint32_t seed) {
  auto values = std::make_shared<std::vector<float>>(elements);
  for (float& value : *values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(seed >> 8);
  }
  return values;
}

// What an owner keeps of a layer after a refresh of method inverse.
StoredLayer MakeLayer(const v1::JobConfig& config, int index) {
  StoredLayer layer;
  const v1::LayerSpec& spec = config.layers(index);
  *layer.meta.mutable_layer() = spec;
  layer.meta.set_job(config.job());
  layer.meta.set_run_id(config.world().run_id());
  layer.meta.set_layer_index(index);
  layer.meta.set_epoch(1);
  layer.meta.mutable_published()->set_method(v1::COMPUTE_METHOD_INVERSE);
  const int64_t a = spec.d_in();
  const int64_t g = spec.d_out();
  const std::pair<v1::SnapshotTensorRole, int64_t> tensors[] = {
      {v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A, a * (a + 1) / 2},
      {v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G, g * (g + 1) / 2},
      {v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_A, a * a},
      {v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_G, g * g}};
  for (const auto& [role, elements] : tensors) {
    v1::SnapshotTensor* tensor = layer.meta.add_tensors();
    tensor->set_role(role);
    tensor->set_elements(elements);
    layer.tensors.push_back(Draw(elements, 7 * index + role));
  }
  return layer;
}

int64_t BytesOf(const Tensor& tensor) {
  return static_cast<int64_t>(tensor->size() * sizeof(float));
}

bool WritePlain(const std::string& path, const StoredLayer& layer) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  bool good = fd >= 0;
  for (const Tensor& tensor : layer.tensors) {
    for (int64_t at = 0; good && at < BytesOf(tensor);) {
      const ssize_t taken =
          write(fd, reinterpret_cast<const char*>(tensor->data()) + at,
                std::min(BytesOf(tensor) - at, kPiece));
      good = taken > 0;
      at += taken;
    }
  }
  good = good && fsync(fd) == 0;
  return close(fd) == 0 && good;
}

bool ReadPlain(const std::string& path, const StoredLayer& layer) {
  const int fd = open(path.c_str(), O_RDONLY);
  bool good = fd >= 0;
  for (const Tensor& tensor : layer.tensors) {
    std::vector<float> values(tensor->size());
    for (int64_t at = 0; good && at < BytesOf(tensor);) {
      const ssize_t got = read(fd, reinterpret_cast<char*>(values.data()) + at,
                               std::min(BytesOf(tensor) - at, kPiece));
      good = got > 0;
      at += got;
    }
  }
  return close(fd) == 0 && good;
}

void DropFromCache(const std::string& folder) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

bool Equal(const StoredLayer& a, const StoredLayer& b) {
  bool equal = a.tensors.size() == b.tensors.size();
  for (size_t i = 0; equal && i < a.tensors.size(); ++i) {
    equal = BytesOf(a.tensors[i]) == BytesOf(b.tensors[i]) &&
            std::memcmp(a.tensors[i]->data(), b.tensors[i]->data(),
                        BytesOf(a.tensors[i])) == 0;
  }
  return equal;
}

class Drill {
 public:
  Drill(std::string folder, v1::JobConfig config,
        std::unique_ptr<CheckpointStore> store)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        store_(std::move(store)) {}

  // Writes and reads one layer in both ways.
  absl::Status Run(int index) {
    const StoredLayer layer = MakeLayer(config_, index);
    int64_t bytes = 0;
    for (const Tensor& tensor : layer.tensors) bytes += BytesOf(tensor);
    const auto plain_write = [&] { return WritePlain(Plain(index), layer); };
    const auto store_write = [&] {
      return store_->WriteBackground(layer.meta, layer.tensors).ok();
    };
    const auto plain_read = [&] { return ReadPlain(Plain(index), layer); };
    Newest newest;
    const auto store_read = [&] {
      newest = store_->ReadNewest(config_, index);
      return newest.layer.has_value();
    };
    const bool plain_first = index % 2 == 0;
    bool good = Both(plain_first, bytes, {plain_write, &sums_.plain_write},
                     {store_write, &sums_.store_write});
    DropFromCache(folder_);
    good = good && Both(plain_first, bytes, {plain_read, &sums_.plain_read},
                        {store_read, &sums_.store_read});
    if (good && Equal(layer, *newest.layer)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("layer '", layer.meta.layer().name(),
                     "' could not be written, or did not come back as it was"));
  }

  const Sums& sums() const { return sums_; }
  int layers() const { return config_.layers_size(); }

 private:
  // What is timed, and where its time is added.
  struct Work {
    std::function<bool()> call;
    Sum* sum;
  };

  std::string Plain(int index) const {
    return absl::StrCat(folder_, "/plain", index);
  }

  static bool Timed(const Work& work, int64_t bytes) {
    bool good = false;
    work.sum->seconds += Seconds([&] { good = work.call(); });
    work.sum->bytes += bytes;
    return good;
  }

  static bool Both(bool in_order, int64_t bytes, const Work& first,
                   const Work& second) {
    if (!in_order) return Timed(second, bytes) && Timed(first, bytes);
    return Timed(first, bytes) && Timed(second, bytes);
  }

  const std::string folder_;
  const v1::JobConfig config_;
  const std::unique_ptr<CheckpointStore> store_;
  Sums sums_;
};

double Rate(const Sum& sum) { return sum.bytes / sum.seconds / 1e6; }

void Print(const Drill& drill) {
  const Sums& sums = drill.sums();
  std::printf("%d layers, %.1f MB of tensors; every bit came back\n\n",
              drill.layers(), sums.plain_write.bytes / 1e6);
  std::printf("         plain MB/s  checkpoint MB/s  of plain\n");
  std::printf("write  %12.1f %16.1f %8.0f %%\n", Rate(sums.plain_write),
              Rate(sums.store_write),
              100 * Rate(sums.store_write) / Rate(sums.plain_write));
  std::printf("read   %12.1f %16.1f %8.0f %%\n", Rate(sums.plain_read),
              Rate(sums.store_read),
              100 * Rate(sums.store_read) / Rate(sums.plain_read));
}

absl::Status RunAll(const DrillOptions& options, const std::string& folder) {
  KRONSERVE_ASSIGN_OR_RETURN(v1::JobConfig config, ReadTable(options));
  FileStoreOptions store_options;
  store_options.directory = folder + "/checkpoints";
  store_options.server = "drill";
  store_options.incarnation = 1;
  KRONSERVE_ASSIGN_OR_RETURN(auto store, OpenFileStore(store_options));
  Drill drill(folder, std::move(config), std::move(store));
  for (int index = 0; index < drill.layers(); ++index) {
    KRONSERVE_RETURN_IF_ERROR(drill.Run(index));
  }
  Print(drill);
  return absl::OkStatus();
}

}  // namespace
}  // namespace kronserve::checkpoint

int main(int argc, char** argv) {
  kronserve::checkpoint::DrillOptions options;
  kronserve::OptionSet flags(
      "checkpoint_benchmark",
      "Writes and reads the layers of a network as checkpoints, and as plain "
      "files of the same bytes.");
  flags.Add("table", &options.table,
            "layer table, such as tests/data/layers/resnet50.csv");
  flags.Require("table");
  flags.Add("directory", &options.directory,
            "where to write; a folder in it is made and removed");
  flags.Add("layers", &options.layers, "at most so many layers of the table",
            {1, 100000});
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  std::string folder = options.directory + "/checkpoint_benchmark.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "cannot make a folder in '%s'\n",
                 options.directory.c_str());
    return 1;
  }
  const absl::Status status = kronserve::checkpoint::RunAll(options, folder);
  std::filesystem::remove_all(folder);
  if (status.ok()) return 0;
  std::fprintf(stderr, "checkpoint_benchmark: %s\n",
               std::string(status.message()).c_str());
  return 1;
}
