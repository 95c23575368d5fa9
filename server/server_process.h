// A whole preconditioner server: what kronserve-server runs, and what an
// in-process cluster starts several of.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_SERVER_PROCESS_H_
#define KRONSERVE_SERVER_SERVER_PROCESS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/server_options.h"

namespace kronserve::server {

// Thread safety: Shutdown() and Kill() by one thread; the others by any.
class ServerProcess {
 public:
  // Serves when it returns; registers with the scheduler in the background, and
  // is not healthy before that.
  //
  // Errors:
  //   kInvalidArgument     the listen address or device is malformed.
  //   kFailedPrecondition  the address cannot be bound, the device is not
  //                        usable, or the address file cannot be written.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const ServerOptions& options);

  // As Kill().
  virtual ~ServerProcess() = default;

  // host:port where it listens.
  virtual const std::string& address() const = 0;
  virtual uint64_t incarnation() const = 0;
  virtual bool is_registered() const = 0;
  virtual v1::GetServerStatusResponse Status() = 0;

  // Not healthy at once; asks the scheduler to move its layers away. Serves on.
  virtual void BeginDrain() = 0;
  // Nothing is owned here any more, or will be: it may stop.
  virtual bool IsDrained() = 0;
  // Writes what is still here to checkpoints, within a few seconds, and names
  // it in the log.
  virtual void SaveLayers() = 0;

  // Not healthy at once; refuses new calls, lets those under way end, cancels
  // what is left after `grace`. Idempotent.
  virtual void Shutdown(absl::Duration grace) = 0;

  // Cuts every connection at once and says goodbye to nobody, as if the
  // process had died. Idempotent.
  virtual void Kill() = 0;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_SERVER_PROCESS_H_
