#include "comm/fork_server.h"

#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/exit.h"

namespace ranks {
namespace {

// One request is one message of a SOCK_SEQPACKET socket: "s", the name and the variables, each ended by a zero byte, with the
// descriptor of the output beside it; or "w" and a pid. The answer is one int.
constexpr size_t kLongest = 256 * 1024;

int receive(int socket, std::string& text) {
  text.resize(kLongest);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count;
  do count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  int descriptor = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

void send(int socket, const std::string& text, int descriptor) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    *header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("the fork server of the tests has ended");
}

int answer(int socket) {
  int value = -1;
  ssize_t count;
  do count = recv(socket, &value, sizeof value, 0);
  while (count < 0 && errno == EINTR);
  if (count != sizeof value) throw std::runtime_error("the fork server of the tests has ended");
  return value;
}

void take_environment(const std::vector<std::string>& variables) {
  clearenv();
  for (const auto& variable : variables) {
    const size_t at = variable.find('=');
    setenv(variable.substr(0, at).c_str(), variable.substr(at + 1).c_str(), 1);
  }
  // The OpenMP runtime read this variable when it was loaded, from the environment of the program that started the tests.
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) at::set_num_threads(std::atoi(threads));
}

void serve(int socket, int (*run)(const std::string&)) {
  std::string text;
  for (;;) {
    const int output = receive(socket, text);
    if (text.empty()) _exit(0);
    int value = 0;
    if (text[0] == 'w') {
      waitpid(std::stoi(text.substr(1)), &value, 0);
    } else {
      value = fork();
      if (value == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(socket);
        dup2(output, 1);
        dup2(output, 2);
        close(output);
        std::vector<std::string> parts;
        for (size_t at = 1; at < text.size(); at += parts.back().size() + 1) parts.push_back(text.c_str() + at);
        const std::string name = parts.front();
        parts.erase(parts.begin());
        take_environment(parts);
        gannet::skip_destructors_of_libraries();  // a third of what a short rank takes
        std::exit(run(name));
      }
      close(output);
    }
    if (::send(socket, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) _exit(0);
  }
}

}  // namespace

ForkServer::ForkServer(int (*run)(const std::string& name)) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair failed");
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    serve(ends[1], run);
  }
  close(ends[1]);
  socket_ = ends[0];
}

ForkServer::~ForkServer() {
  close(socket_);
  waitpid(pid_, nullptr, 0);
}

pid_t ForkServer::start(const std::string& name, const std::vector<std::string>& environment, int output) {
  std::string text = "s" + name;
  for (const auto& variable : environment) {
    text += '\0';
    text += variable;
  }
  text += '\0';
  const std::lock_guard lock(mutex_);
  send(socket_, text, output);
  return answer(socket_);
}

int ForkServer::wait(pid_t pid) {
  const std::lock_guard lock(mutex_);
  send(socket_, "w" + std::to_string(pid), -1);
  return answer(socket_);
}

}  // namespace ranks
