// What a server process is told at its start.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_SERVER_OPTIONS_H_
#define KRONSERVE_SERVER_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/options.h"

namespace kronserve::server {

struct ServerOptions {
  std::string name;                    // Unique among the servers.
  std::string listen = "127.0.0.1:0";  // host:port; port 0 is any.
  bool insecure_bind = false;
  std::string scheduler;  // host:port; empty: serve without one.
  // host:port that ranks and the scheduler use; empty: where it listens.
  std::string advertise;
  std::string device = "auto";
  int64_t refresh_threads = 1;
  int64_t request_threads = 2;
  int64_t memory_limit_bytes = int64_t{2} << 30;
  int64_t staging_limit_bytes = int64_t{1} << 30;
  std::string cost_probe = "measure";  // or "default"
  std::string address_file;            // Gets the address; empty: none.
  // How long a stopping server waits for its layers to move away.
  absl::Duration drain_grace = absl::Seconds(20);
  std::string checkpoint_dir;  // Shared by all servers; empty: none.
  absl::Duration checkpoint_interval = absl::Seconds(10);
  int64_t checkpoint_keep = 2;  // Background files of a layer.
};

// Declares every flag of kronserve-server. `options` outlives `set`.
void AddServerOptions(OptionSet* set, ServerOptions* options);

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_SERVER_OPTIONS_H_
