"""How shells say that a command is not there or how a program ended, in the languages of their users.

bash and the system's library (glibc) translate such lines. A script's log is in the language of whoever submitted it.
"""

from __future__ import annotations

NOT_FOUND = (
    r"(?:command not found|未找到命令|找不到命令|コマンドが見つかりません|Kommando nicht gefunden|commande introuvable|"
    r"orden no encontrada|команда не найдена)"
)
"""What bash says of a command that is not there, in the languages of its users."""

_PROGRAM_WORDS = "python torchrun accelerate deepspeed ray vllm srun mpirun singularity apptainer"
"""One of these stands in most lines by which a shell tells how a program of theirs ended."""

LINE_OF_SCRIPT = r"(?:(?:line|Zeile|ligne|línea|linha|riga|строка|第?\s?行) \d+(?:\s?行)?|第 ?\d+ ?行|\d+\s?줄) ?: +"
"""Where a shell says that a program of its script ended, before the process id."""

KILLED = (
    r"(?:Killed|Getötet|Processus arrêté|Tué|Terminado \(killed\)|Matado|Morto|Ucciso|"
    r"已杀死|已殺死|強制終了|죽었음|Убито)(?!\w)"
)
KILLED_WORDS = f"killed tet processus tu matado morto ucciso {_PROGRAM_WORDS}"
SEGFAULT = (
    r"(?:Segmentation fault|Speicherzugriffsfehler|Erreur de segmentation|Violación de segmento|Falha de segmentação|"
    r"Errore di segmentazione|段错误|段錯誤|程式記憶體區段錯誤|セグメンテーション違反|"
    r"세그멘테이션 오류|Ошибка сегментирования)"
)
SEGFAULT_WORDS = f"segmentation segmentazione speicherzugriffsfehler segmento falha {_PROGRAM_WORDS}"
"""What glibc calls SIGKILL and SIGSEGV in the languages of its users, and words one of which is in most such lines."""
