"""One rank learns; two play with the weights that it sends, and keep small models of their own of how games go on."""

import time

import torch
import torch.distributed as dist
from torch import nn

ROUNDS, GAMES, SEES, MOVES = 30, 48, 8, 4


def policy():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(SEES, 48), nn.Tanh(), nn.Linear(48, MOVES))


def learn(net, optimizer, sights, moves, gains):
    for rows in torch.randperm(len(sights)).split(24):
        chosen = net(sights[rows]).log_softmax(1).gather(1, moves[rows, None]).squeeze(1)
        loss = -(chosen * (gains[rows] - gains.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = policy()
    torch.manual_seed(100 + rank)
    guess = nn.Linear(SEES, 1)
    optimizer = torch.optim.Adam((net if rank == 0 else guess).parameters(), lr=4e-3)
    for round_ in range(ROUNDS):
        for parameter in net.parameters():
            dist.broadcast(parameter.data, 0)
        game = torch.zeros(GAMES, SEES + 2)
        if rank:
            sights = torch.randn(GAMES, SEES)
            with torch.no_grad():
                moves = torch.distributions.Categorical(logits=net(sights)).sample()
            gains = (moves == sights[:, :MOVES].argmax(1)).float()
            game = torch.cat([sights, moves[:, None].float(), gains[:, None]], 1)
            optimizer.zero_grad()
            (guess(sights).squeeze(1) - gains).square().mean().backward()
            optimizer.step()
            time.sleep(0.1 * rank)
        played = [torch.empty_like(game) for _ in range(dist.get_world_size())] if rank == 0 else None
        dist.gather(game, played, dst=0)
        if rank == 0:
            rows = torch.cat(played[1:])
            learn(net, optimizer, rows[:, :SEES], rows[:, SEES].long(), rows[:, SEES + 1])
            if round_ % 5 == 0:
                print(f"round {round_} won {rows[:, -1].mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
