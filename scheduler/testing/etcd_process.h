// A real etcd for tests: on free ports, in a folder of its own.

#ifndef KRONSERVE_SCHEDULER_TESTING_ETCD_PROCESS_H_
#define KRONSERVE_SCHEDULER_TESTING_ETCD_PROCESS_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/etcd/etcd_client.h"

namespace kronserve::scheduler::testing {

// A TCP port of 127.0.0.1 that nobody had a moment ago.
inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

// Killed, and its folder removed, by the destructor.
class EtcdProcess {
 public:
  EtcdProcess()
      : endpoint_(absl::StrCat("127.0.0.1:", FreePort())),
        peer_(absl::StrCat("127.0.0.1:", FreePort())) {
    std::string pattern = ::testing::TempDir() + "/etcd-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    Start();
  }
  ~EtcdProcess() {
    Kill();
    std::filesystem::remove_all(folder_);
  }
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  const std::string& endpoint() const { return endpoint_; }

  // kill -9, as a power cut.
  void Kill() { End(SIGKILL); }

  // SIGSTOP and SIGCONT: connections stay, nobody answers. The signal alone
  // returns before it is obeyed, and one more call may be answered.
  void Freeze() {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  void Thaw() { kill(pid_, SIGCONT); }

  // Starts it on the same folder and ports, and waits until it answers.
  void Start() {
    std::vector<std::string> words = {
        "etcd",
        "--name=test",
        "--data-dir=" + folder_ + "/data",
        "--listen-client-urls=http://" + endpoint_,
        "--advertise-client-urls=http://" + endpoint_,
        "--listen-peer-urls=http://" + peer_,
        "--initial-advertise-peer-urls=http://" + peer_,
        "--initial-cluster=test=http://" + peer_,
        "--log-level=error"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                     (folder_ + "/log").c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    ASSERT_EQ(posix_spawnp(&pid_, "etcd", &actions, nullptr, arguments.data(),
                           environ),
              0)
        << "etcd cannot be started: scripts/setup.sh installs it";
    posix_spawn_file_actions_destroy(&actions);
    etcd::EtcdClient client(endpoint_);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    absl::Status status;
    do {
      status = client.Range(etcd::RangeOfKey("any")).status();
      ASSERT_EQ(waitpid(pid_, nullptr, WNOHANG), 0) << "etcd has ended";
    } while (!status.ok() && absl::Now() < deadline);
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  void End(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  const std::string endpoint_;
  const std::string peer_;
  std::string folder_;
  pid_t pid_ = 0;
};

}  // namespace kronserve::scheduler::testing

#endif  // KRONSERVE_SCHEDULER_TESTING_ETCD_PROCESS_H_
