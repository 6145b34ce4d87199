// Threads that wait between the rounds of a training.
#pragma once
#include <barrier>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace gristmill::train {

class Team {
public:
    explicit Team(unsigned size) : size_(size), gate_(size) {
        try {
            for (unsigned i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
        } catch (const std::system_error&) {
            // No more threads to be had: those there are do the work.
            for (size_ = 1 + static_cast<unsigned>(threads_.size()); size > size_; --size) gate_.arrive_and_drop();
        }
    }
    ~Team() {
        is_over_ = true;
        if (size_ > 1) gate_.arrive_and_wait();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    unsigned size() const { return size_; }

    // work(0) .. work(size - 1), each on its own thread; an exception in any of them is thrown here.
    void run(const std::function<void(unsigned)>& work) {
        if (size_ == 1) return work(0);
        work_ = &work;
        gate_.arrive_and_wait();
        guarded(0);
        gate_.arrive_and_wait();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

private:
    void serve(unsigned index) {
        for (;;) {
            gate_.arrive_and_wait();
            if (is_over_) return;
            guarded(index);
            gate_.arrive_and_wait();
        }
    }
    void guarded(unsigned index) {
        try {
            (*work_)(index);
        } catch (...) {
            std::lock_guard lock(mutex_);
            failure_ = std::current_exception();
        }
    }

    unsigned size_;
    std::barrier<> gate_;
    const std::function<void(unsigned)>* work_ = nullptr;
    bool is_over_ = false;
    std::mutex mutex_;
    std::exception_ptr failure_;
    std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace gristmill::train
