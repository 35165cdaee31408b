"""The classes behind `import scopeline`: child processes of commands, results, models, servers."""
