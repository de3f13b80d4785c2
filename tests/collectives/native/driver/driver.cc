// Drives the carriers of collectives/native by random work, without TensorFlow: the window and the mail
// within a machine, the network and the post between machines, in turns.
//
//     driver processes|threads|many SEED SECONDS
//
// `processes`: trials of 2 to 8 processes. In a third of the trials one is killed at a random moment;
// then the others may wait or say so, but not go wrong. `threads`: the ranks are threads, so that
// ThreadSanitizer sees them all. `many`: 256 threads that find all groups of a mesh of eight axes, and
// run collectives along each axis and of all ranks. The driver prints the number of trials. Its status
// is 1 if a result is wrong, if ranks wait for ever, or if a rank ends in another way than it may.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "communication.h"
#include "random_work.h"
#include "sockets.h"

namespace driver {
namespace {

constexpr int kWrong = 1, kPeerGone = 3;
constexpr double kLimitSeconds = 120;

// Memory like the one that ranks of a machine share.
class Shared {
 public:
  explicit Shared(int64_t bytes) : bytes_(bytes), file_(memfd_create("driver", MFD_CLOEXEC)) {
    if (file_ < 0 || ftruncate(file_, bytes) != 0) throw std::runtime_error("no shared memory.");
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("shared memory cannot be mapped.");
    base_ = static_cast<char*>(memory);
  }
  ~Shared() {
    munmap(base_, bytes_);
    close(file_);
  }
  Shared(const Shared&) = delete;
  char* base() const { return base_; }
  int file() const { return file_; }

 private:
  int64_t bytes_;
  int file_;
  char* base_ = nullptr;
};

// The memory of a trial.
struct Memories {
  explicit Memories(const Trial& trial)
      : window(collectives::WindowBytes(trial.ranks, trial.chunk_bytes)),
        mail(collectives::Mail::Start(trial.ranks) + trial.ranks * trial.room),
        board(collectives::Board::Bytes(trial.ranks)) {}
  Shared window, mail, board;
};

// What the ranks of a trial share: memory, or connections for collectives and for messages.
struct Shares {
  explicit Shares(const Trial& trial) {
    if (trial.is_network) {
      network = std::make_unique<Sockets>(trial.ranks, trial.buffer_bytes);
      post = std::make_unique<Sockets>(trial.ranks, trial.buffer_bytes);
    } else {
      memories = std::make_unique<Memories>(trial);
    }
  }
  // Lets a process see the end of another one: only the process of a rank holds its sockets.
  void CloseOthers(int rank) {
    for (Sockets* sockets : {network.get(), post.get()}) {
      if (sockets != nullptr) sockets->CloseOthers(rank);
    }
  }
  std::unique_ptr<Memories> memories;
  std::unique_ptr<Sockets> network, post;
};

// Runs a rank of a trial between machines. The thread of a post ends with its process, so that the
// ranks wait for each other before they end: all messages have been sent then.
void RunBetweenMachines(const Trial& trial, int rank, Shares& shares) {
  ThroughNetwork carrier(rank, shares.network->Take(rank), trial.rounds);
  ThroughPost messenger(*new collectives::Post(shares.post->Take(rank)));
  Work(trial, rank, carrier, messenger);
  Members all(trial.ranks);
  std::iota(all.begin(), all.end(), 0);
  char signal = 0;
  std::vector<char> signals(trial.ranks);
  std::vector<Runs> received;
  for (char& each : signals) received.push_back({&each, 1, 1, 1});
  carrier.Gather(all, {&signal, 1, 1, 1}, received, 1);
}

// Runs a rank of a trial. `processes` are those of all ranks.
void RunRank(const Trial& trial, int rank, Shares& shares, std::vector<pid_t> processes) {
  if (trial.is_network) return RunBetweenMachines(trial, rank, shares);
  const Memories& memories = *shares.memories;
  const double spin_seconds = rank % 2 == 0 ? 0 : 1e-4;
  if (!trial.reads) processes.clear();
  collectives::Window window(memories.window.base(), rank, trial.ranks, trial.chunk_bytes,
                             spin_seconds, trial.shares_cores, std::move(processes), 1,
                             trial.bypass_below);
  collectives::Mail mail(memories.mail.base(), rank, trial.ranks, trial.room, memories.mail.file(),
                         spin_seconds, trial.bypass_below);
  for (int64_t operation = 0; operation < trial.operations; ++operation) {
    if (IsOfMessages(operation)) Allow(mail, rank, Messages(trial, DrawnFor(trial, operation)));
  }
  ThroughWindow carrier(window);
  collectives::Board board(memories.board.base(), rank, trial.ranks, spin_seconds);
  for (int64_t round = 0; round < 3 * trial.operations; ++round) Consult(board, trial, rank, round);
  Work(trial, rank, carrier, mail);
}

Trial Drawn(uint64_t seed) {
  Random random(seed);
  Trial trial;
  trial.seed = seed;
  trial.ranks = 2 + static_cast<int>(Below(random, 7));
  trial.chunk_bytes = int64_t{1} << (9 + Below(random, 6));
  trial.shares_cores = Below(random, 2) == 0;
  trial.reads = Below(random, 2) == 0;
  trial.bypass_below = Below(random, 2) == 0 ? 0 : 1e18;
  trial.is_network = seed % 2 == 1;
  if (trial.is_network) {
    trial.rounds = Below(random, 2) == 0;
    trial.bits = Below(random, 2) == 0 ? 9 : 13;
    trial.buffer_bytes = Below(random, 2) == 0 ? 0 : 1 << 12;
  }
  return trial;
}

// The process of a rank. It never returns.
[[noreturn]] void Child(const Trial& trial, int rank, Shares& shares,
                        const std::atomic<pid_t>* processes) {
  int status = 0;
  try {
    shares.CloseOthers(rank);
    std::vector<pid_t> all(trial.ranks);
    for (int i = 0; i < trial.ranks; ++i) {
      while ((all[i] = processes[i].load()) == 0) usleep(100);
    }
    RunRank(trial, rank, shares, all);
  } catch (const std::logic_error& error) {
    std::fprintf(stderr, "seed %lu, rank %d: %s\n", trial.seed, rank, error.what());
    status = kWrong;
  } catch (const std::exception& error) {
    status = kPeerGone;
  }
  std::fflush(stderr);
  _exit(status);
}

// Waits for a rank's process; returns its status as of `waitpid`, or -1 after `until`.
int Ended(pid_t process, double until) {
  for (int status;;) {
    if (waitpid(process, &status, WNOHANG) == process) return status;
    if (collectives::Now() > until) return -1;
    usleep(500);
  }
}

// Runs a trial in processes; returns whether all went well.
bool InProcesses(const Trial& trial) {
  Random random(trial.seed + 1);
  const bool kills = Below(random, 3) == 0;
  const int killed = static_cast<int>(Below(random, trial.ranks));
  Shares shares(trial);
  const Shared shared(4096);
  auto* processes = reinterpret_cast<std::atomic<pid_t>*>(shared.base());
  for (int rank = 0; rank < trial.ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) Child(trial, rank, shares, processes);
    processes[rank] = process;
  }
  shares.CloseOthers(-1);
  if (kills) {
    usleep(static_cast<useconds_t>(Below(random, 40000)));
    kill(processes[killed], SIGKILL);
    usleep(static_cast<useconds_t>(Below(random, 20000)));
  }
  // After a death the ranks that wait are ended, as a launcher does.
  const double until = collectives::Now() + (kills ? 0.02 : kLimitSeconds);
  bool is_well = true;
  for (int rank = 0; rank < trial.ranks; ++rank) {
    int status = Ended(processes[rank], until);
    const bool is_ended = status == -1;
    if (is_ended) {
      kill(processes[rank], SIGKILL);
      waitpid(processes[rank], &status, 0);
    }
    const bool may_fail = kills && (is_ended || rank == killed || status == kPeerGone << 8);
    if (status == 0 || may_fail) continue;
    std::fprintf(stderr, "seed %lu, rank %d of %d: status %x%s\n", trial.seed, rank, trial.ranks,
                 status, is_ended ? ", waits for ever" : "");
    is_well = false;
  }
  return is_well;
}

// Runs a function of each rank in a thread of its own. An error ends the process.
template <typename Function>
void OnThreads(int ranks, Function function) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        function(rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::_Exit(kWrong);  // the other ranks wait for this one
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs a trial in threads of a process of its own, which ends the threads of posts, too.
bool InThreads(const Trial& trial) {
  const pid_t process = fork();
  if (process == 0) {
    Shares shares(trial);
    const std::vector<pid_t> processes(trial.ranks, getpid());
    OnThreads(trial.ranks, [&](int rank) { RunRank(trial, rank, shares, processes); });
    _exit(0);
  }
  const int status = Ended(process, collectives::Now() + kLimitSeconds);
  if (status == 0) return true;
  std::fprintf(stderr, "seed %lu, %d ranks: status %x\n", trial.seed, trial.ranks, status);
  kill(process, SIGKILL);
  return false;
}

// Calls from several threads run one at a time, while another thread asks which one runs.
bool OneAtATime() {
  struct Ledger {
    int64_t calls = 0;
  };
  auto& communication = collectives::CommunicationIn<Ledger>::Get();
  const int memory = communication.Add(std::make_unique<Ledger>());
  std::atomic<int> done{0};
  constexpr int kThreads = 4, kCalls = 50;
  OnThreads(kThreads, [&](int) {
    for (int64_t call = 0; call < kCalls; ++call) {
      auto work = [&communication, &done, memory, call] {
        communication.Run(memory, call, [](Ledger& ledger) { ++ledger.calls; });
        ++done;
      };
      if (call % 2 == 0) communication.Submit(work);
      else work();
      double since;
      communication.Running(&since);
    }
  });
  while (done < kThreads * kCalls) usleep(100);
  int64_t calls = 0;
  communication.Run(memory, -1, [&](Ledger& ledger) { calls = ledger.calls; });
  return calls == kThreads * kCalls;
}

// 256 ranks in all groups of a mesh of eight axes of two.
void Many() {
  Trial trial;
  trial.ranks = 256;
  trial.bits = 2;
  trial.chunk_bytes = trial.ranks * collectives::kAlignment;
  trial.room = 4096;
  const Memories memories(trial);
  OnThreads(trial.ranks, [&](int rank) {
    collectives::Window window(memories.window.base(), rank, trial.ranks, trial.chunk_bytes, 0,
                               true, {}, 1, 0);
    ThroughWindow carrier(window);
    Collectives all(carrier, trial, rank);
    for (int axes = 1; axes < trial.ranks; ++axes) {
      std::vector<int> members;
      for (int member = 0; member < trial.ranks; ++member) {
        if ((member & ~axes) == (rank & ~axes)) members.push_back(member);
      }
      window.Find(members);
      if (members.size() == 2) all.Run(axes % 5, axes, members, Random(axes));
      if (axes == trial.ranks - 1) {
        for (int kind = 0; kind < 5; ++kind) all.Run(kind, axes + kind, members, Random(kind));
      }
    }
  });
}

}  // namespace
}  // namespace driver

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const std::string mode = arguments[1];
  const uint64_t seed = std::strtoull(arguments[2], nullptr, 10);
  const double until = collectives::Now() + std::atof(arguments[3]);
  int trials = 0;
  bool is_well = true;
  for (; is_well && (trials == 0 || collectives::Now() < until); ++trials) {
    if (mode == "many") {
      driver::Many();
    } else {
      const driver::Trial trial = driver::Drawn(seed + trials);
      is_well = mode == "processes" ? driver::InProcesses(trial) : driver::InThreads(trial);
    }
  }
  if (mode == "threads") is_well &= driver::OneAtATime();
  std::printf("%d\n", trials);
  return is_well ? 0 : driver::kWrong;
}
