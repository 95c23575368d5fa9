// What `kronctl status` prints.
//
// Layer: client. May include common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_STATUS_VIEW_H_
#define KRONSERVE_CLIENT_CLI_STATUS_VIEW_H_

#include <string>

#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::client {

// Tables for people: servers, jobs, and for each job its layers and owners.
//
//   colors  ANSI colours for states; only for terminals.
std::string RenderText(const v1::GetStatusResponse& status,
                       const std::string& scheduler, bool colors);

// One JSON object with the same content, for programs: `scheduler`, `servers`
// and `jobs`; enums as lower-case words, incarnations as decimal strings
// (JSON numbers lose 64-bit integers), other numbers as numbers.
std::string RenderJson(const v1::GetStatusResponse& status,
                       const std::string& scheduler);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_STATUS_VIEW_H_
