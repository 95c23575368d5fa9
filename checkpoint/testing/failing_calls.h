// A file system that fails where a test wants it to.

#ifndef KRONSERVE_CHECKPOINT_TESTING_FAILING_CALLS_H_
#define KRONSERVE_CHECKPOINT_TESTING_FAILING_CALLS_H_

#include <algorithm>
#include <cerrno>
#include <string>

#include "checkpoint/durable_file.h"

namespace kronserve::checkpoint {

class FailingCalls final : public WriteCalls {
 public:
  int Create(const std::string& path) override {
    return create_error ? Fail(create_error) : WriteCalls::Create(path);
  }
  // Takes `room` bytes in all, in pieces of at most `piece`, then fails.
  ssize_t Write(int fd, const void* data, size_t bytes) override {
    if (interrupts > 0) {
      --interrupts;
      return Fail(EINTR);
    }
    if (room == 0) return Fail(write_error);
    const ssize_t taken =
        WriteCalls::Write(fd, data, std::min({bytes, room, piece}));
    room -= taken;
    return taken;
  }
  int Sync(int fd) override {
    ++syncs;
    return syncs == failing_sync ? Fail(sync_error) : WriteCalls::Sync(fd);
  }
  int Rename(const std::string& from, const std::string& to) override {
    return rename_error ? Fail(rename_error) : WriteCalls::Rename(from, to);
  }

  int create_error = 0;
  size_t room = size_t{1} << 40;
  size_t piece = size_t{1} << 40;
  int interrupts = 0;
  int write_error = ENOSPC;
  int failing_sync = 0;  // Counted from 1.
  int sync_error = EIO;
  int rename_error = 0;
  int syncs = 0;

 private:
  static int Fail(int error_number) {
    errno = error_number;
    return -1;
  }
};

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_TESTING_FAILING_CALLS_H_
