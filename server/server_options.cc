#include "server/server_options.h"

namespace kronserve::server {

void AddServerOptions(OptionSet* set, ServerOptions* options) {
  set->Add("name", &options->name,
           "name of this server, unique in the cluster");
  set->Require("name");
  set->Add("listen", &options->listen,
           "host:port to serve on; port 0 is any free one");
  set->Add("insecure-bind", &options->insecure_bind,
           "serve without TLS on an address that is not loopback");
  set->Add("scheduler", &options->scheduler,
           "host:port of the scheduler; of several: comma-separated");
  set->Require("scheduler");
  set->Add("advertise", &options->advertise,
           "host:port that ranks and the scheduler use; default: where it "
           "listens");
  set->Add("device", &options->device, "where to compute",
           {"auto", "cuda", "cpu", "reference"});
  set->Add("refresh-threads", &options->refresh_threads,
           "threads that factorise", OptionSet::IntRange{1, 256});
  set->Add("request-threads", &options->request_threads,
           "threads that merge and precondition", OptionSet::IntRange{1, 256});
  set->AddBytes("memory-limit", &options->memory_limit_bytes,
                "bytes that the layers of all jobs may take");
  set->AddBytes("staging-limit", &options->staging_limit_bytes,
                "bytes of factors and gradients that may be under way");
  set->Add("cost-probe", &options->cost_probe,
           "measure what a refresh costs here, or take the default curve",
           {"measure", "default"});
  set->Add("address-file", &options->address_file,
           "file that gets the address once it is known");
  set->Add("drain-grace", &options->drain_grace,
           "how long a stopping server waits for its layers to move away");
  set->Add("checkpoint-dir", &options->checkpoint_dir,
           "directory that all servers share; without one the state of a lost "
           "server is lost");
  set->Add("checkpoint-interval", &options->checkpoint_interval,
           "between two background checkpoints of one layer");
  set->Add("checkpoint-keep", &options->checkpoint_keep,
           "background checkpoints kept of each layer",
           OptionSet::IntRange{1, 100});
  set->Check([options]() -> std::string {
    return options->name.size() <= 256 ? "" : "name: longer than 256 bytes";
  });
}

}  // namespace kronserve::server
